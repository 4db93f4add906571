"""The trainer kind `supervised`: the base trainer, with readable names for saved models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ludus.config.base import TrainerConfig, given
from ludus.config.registry import find, register_trainer
from ludus.core import Run
from ludus.core.errors import ConfigError
from ludus.core.services import Weights
from ludus.store.models import write_model
from ludus.store.places import make_storage
from ludus.supervised.build import named_in_full
from ludus.supervised.trainer import BaseTrainer


@register_trainer("supervised")
class Trainer(BaseTrainer):
    """Learns from labelled examples: the trainer of kind `supervised`.

    It saves milestones as `<architecture>_<dataset>_<experiment>_epoch_<n>`.
    """

    chkpt_dir: str | Path | None = None
    """A directory, or a URL, where the weights of milestones and of the best model (`..._best`) are written
    besides the run's own `models/`; None for none."""

    @classmethod
    def build(
        cls,
        config: TrainerConfig | Mapping[str, Any] | str | Path,
        env: object = None,
        step_processor: object = None,
        replay_buffer: object = None,
    ) -> Any:
        """Return the trainer of the config's kind, with these arguments in place of its sections.

        If the kind has its own `build`, as agents with a replay buffer do, see there for what each
        may be; other kinds take a config alone.
        """
        typed: Any = given(config)
        found: Any = find("trainer", str(getattr(typed, "kind", None)))
        if hasattr(found, "build") and not issubclass(found, Trainer):
            return found.build(typed, env, step_processor, replay_buffer)
        parts = {"env": env, "step_processor": step_processor, "replay_buffer": replay_buffer}
        if named := [name for name, one in parts.items() if one is not None]:
            raise ConfigError(
                f"a trainer of kind '{typed.kind}' is not built of {', '.join(named)}; change its config,"
                " or give the config of an agent with a replay buffer"
            )
        return (cls if issubclass(cls, found) else found)(typed)

    def _keep(self, name: str, weights: Weights, note: Mapping[str, Any]) -> None:
        super()._keep(name, weights, note)
        if self.chkpt_dir is not None:
            own = name.removeprefix("models/")
            own = named_in_full(self, "best") if own.startswith("best-") else own
            write_model(make_storage(self.chkpt_dir), own, weights, note)

    def checkpoint_name(self, run: Run) -> str:
        """Return the name of the weights saved now."""
        return named_in_full(self, super().checkpoint_name(run))
