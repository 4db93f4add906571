"""Origin of a run: what its config builds, and what a script gave it."""

from __future__ import annotations

from ludus.config.registry import find
from ludus.core import counters
from ludus.core.errors import ConfigError
from ludus.core.run import Run
from ludus.core.runtime import Request
from ludus.core.trainer import Trainer
from ludus.session.logger import Logger
from ludus.store import directory
from ludus.store.storage import Storage


def is_all_of_config(trainer: Trainer) -> bool:
    """Return whether the config alone, without a script, can rebuild this trainer and resume its run."""
    return is_model_of_config(trainer) and not trainer.is_customised


def is_model_of_config(trainer: Trainer) -> bool:
    """Return whether the config alone builds the model and the data; callbacks do not count."""
    try:
        is_registered = find("trainer", trainer.config.kind) is type(trainer)
    except ConfigError:
        is_registered = False
    return is_registered and not trainer.given_classes


def origins(trainer: Trainer) -> dict[str, str]:
    """Return the fields of run.json that say what can rebuild the trainer, and its model alone."""
    found = {"origin": is_all_of_config(trainer), "model_origin": is_model_of_config(trainer)}
    return {key: "config" if is_of_config else "script" for key, is_of_config in found.items()}


def own_counters(run: Run) -> dict[str, list[str]]:
    """Return the field of run.json with the family's own counters; empty if it has none.

    A report is made without the plugin, and must distinguish counters from metrics.
    """
    own = [name for name in run.counters if name not in counters.SHARED]
    return {"counters": own} if own else {}


def storage_of(trainer: Trainer, request: Request) -> Storage:
    """Return the storage of a run, whether it exists yet or not."""
    storage = trainer.storage
    if storage is None:
        name = trainer.config.name if request.name is None else request.name
        return directory.run_storage(request.root, name, is_resume=bool(request.resume))
    if request.name is not None:
        raise ConfigError("a storage was set, which says where the run is kept; give no name")
    if not isinstance(storage, Storage):
        raise ConfigError(
            f"set_storage was given a {type(storage).__name__}; give it a storage, as"
            " ludus.open_storage(path) makes one"
        )
    return storage


def logger_of(trainer: Trainer) -> Logger:
    """Return the logger that collects the metrics of stages."""
    given = trainer.given_logger
    if given is None:
        given = Logger(Logger.Config(backends=trainer.config.settings.loggers))
    if not isinstance(given, Logger):
        raise ConfigError(
            f"set_logger was given a {type(given).__name__}; give it a ludus.Logger, to which a back end"
            " of your own is added with attach"
        )
    given.check()
    return given
