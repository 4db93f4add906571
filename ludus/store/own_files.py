"""Files of a run directory that ludus wrote, by their names; whatever else is there is the user's."""

from __future__ import annotations

import re

from ludus.config import families

_OWN = (
    r"LOCK|config\.yaml|(run|tags|overlap)\.json",
    r"(metrics|timing|weights|events)\.jsonl|metrics\.csv",
    r"events/events\.out\.tfevents\.[^/]+",
    r"journals/[^/]+\.jsonl",
    r"checkpoints/[0-9]{10}/(state\.json|tensors\.safetensors|manifest\.json)",
    r"segments(-copy)?/([0-9a-f]{64}\.safetensors|new)",
    r"models/[^/]+/(weights\.safetensors|model\.json)",
    r"wandb/.+",
)
# What was being written, deleted or set aside when a process was killed.
_UNFINISHED = re.compile(r"\.(tmp|trash|aside)-[0-9a-zA-Z_]+(?=/|$)")


def is_own(name: str) -> bool:
    """Return whether a file of this relative name is one that a run writes."""
    plain = _UNFINISHED.sub("", name)
    patterns = [*_OWN, *map(_regex, families.run_files())]
    return any(re.fullmatch(pattern, plain) for pattern in patterns)


def is_own_folder(name: str) -> bool:
    """Return whether a run makes a folder of this name, which may be empty."""
    plain = _UNFINISHED.sub("", name)
    top, _, rest = plain.partition("/")
    declared = {pattern.partition("/")[0] for pattern in families.run_files() if "/" in pattern}
    whole = {pattern.removesuffix("/**") for pattern in families.run_files()}
    if top == "wandb" or top in whole:
        return True
    if top in ("checkpoints", "models"):
        return rest == "" or "/" not in rest
    return not rest and top in {"events", "journals", "segments", "segments-copy", *declared}


def _regex(pattern: str) -> str:
    parts = ("[^/]*".join(map(re.escape, part.split("*"))) for part in pattern.split("**"))
    return ".+".join(parts)
