"""A server of the run's own: it keeps its models in the directory of the run, and ends with it."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Protocol

from pydantic import BeforeValidator, SerializeAsAny

from ludus.config.base import StrictConfig
from ludus.text.client.http import url_problem
from ludus.text.client.secret import KeyConfig

# Reading a provider's config must not load the network of a model, so these are imported when needed.
_NEW_MODELS, _SERVER = "ludus.text.models.new_model", "ludus.text.server.start"


def _new_model(value: object) -> StrictConfig:
    config_class: type[StrictConfig] = importlib.import_module(_NEW_MODELS).NewModelConfig
    return value if isinstance(value, config_class) else config_class.model_validate(value)


NewModelSection = Annotated[SerializeAsAny[StrictConfig], BeforeValidator(_new_model)]


class Handle(Protocol):
    """A server that was started."""

    url: str
    token: str

    def close(self) -> None:
        """Stop it."""


def started(directory: Path, new_models: Mapping[str, StrictConfig]) -> Handle:
    """Start a server whose models are in this directory; it ends with the thread that starts it."""
    handle: Handle = importlib.import_module(_SERVER).start_server(directory, new_models=new_models)
    return handle


def problems_of_address(
    url: str | None, key: KeyConfig | None, new_models: Mapping[str, StrictConfig]
) -> Iterator[str]:
    """Yield the conflicts between the address of a server and the keys of one that is started."""
    if url is None:
        if key is not None:
            yield "'url' is null, and a server of the run's own needs no key; set 'key' to null"
        if not new_models:
            yield (
                "'url' is null and 'new_models' is {}, so the server that is started has no models; name"
                " one in 'new_models', or give the address of a server"
            )
        return
    if problem := url_problem(url):
        yield problem
    if new_models:
        yield (
            "'new_models' are made by a server of the run's own, and 'url' names another; set 'url' to"
            " null, or 'new_models' to {}"
        )
