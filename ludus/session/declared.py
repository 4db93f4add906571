"""Declarations of this package to the library's registry of names."""

from __future__ import annotations

from typing import Any

from ludus.config.families import declare
from ludus.config.registry import find, kinds


def _to_6(data: dict[str, Any]) -> dict[str, Any]:
    """Add the section `start`, which says what a run starts from: null, new weights."""
    kind = data.get("kind")
    if "start" in data or kind not in kinds("trainer"):
        return data
    from ludus.config.start import takes_start

    config = find("trainer", str(kind)).Config
    if not takes_start(config):
        return data
    fields = [*config.model_fields]
    after = fields[fields.index("start") + 1 :]
    place = next((index for index, key in enumerate(data) if key in after), len(data))
    items = [*data.items()]
    return dict([*items[:place], ("start", None), *items[place:]])


declare(
    "ludus.session",
    categories={"logger": "loggers"},
    migrations={5: _to_6},
    needs={"wandb": "ludus[wandb]", "mlflow": "ludus[mlflow]", "pandas": "ludus[frames]"},
)
