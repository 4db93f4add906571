"""Where a run is kept and what logs it: what a script has set, or else what the config says."""

from __future__ import annotations

from ludus.core.errors import ConfigError
from ludus.core.surroundings import Request
from ludus.core.trainer import Trainer
from ludus.session.logger import Logger
from ludus.store import directory
from ludus.store.storage import Storage


def storage_of(trainer: Trainer, request: Request) -> Storage:
    """Return the storage of a run, made or not."""
    storage = trainer.storage
    if storage is None:
        name = trainer.config.name if request.name is None else request.name
        return directory.run_storage(request.root, name, is_resume=bool(request.resume))
    if request.name is not None:
        raise ConfigError("a storage was set, which says where the run is kept; give no name")
    if not isinstance(storage, Storage):
        raise ConfigError(
            f"set_storage was given a {type(storage).__name__}; give it a storage, as"
            " ludus.store.places.open_storage(path) makes one"
        )
    return storage


def logger_of(trainer: Trainer) -> Logger:
    """Return the logger that gathers what stages record."""
    given = trainer.given_logger
    if given is None:
        return Logger(Logger.Config(backends=trainer.config.settings.loggers))
    if not isinstance(given, Logger):
        raise ConfigError(
            f"set_logger was given a {type(given).__name__}; give it a ludus.Logger, to which a back end"
            " of your own is added with attach"
        )
    return given
