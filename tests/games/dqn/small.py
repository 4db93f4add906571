"""Small real runs of a host and an agent, for tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

import ludus
from ludus.core.runtime import InMemoryRuntime, Request
from ludus.games.trainers.fused_dqn import DQNTrainer
from ludus.seeds import derive, seed_everything

STEADY = {"kind": "constant", "warmup_steps": 0}
_ROLE: dict[str, Any] = {
    "net_arch": [8, "b"],
    "batch_size": 8,
    "initial_rollout_size": 20,
    "rollout_size": 6,
    "max_rollout_step": 4,
    "collect_every_rounds": 2,
    "sparring": [],
    "sync_target_every_rounds": 3,
    "replay_capacity": 60,
    "gamma": 0.95,
    "tau": 1.0,
    "optimizer.learning_rate": 0.01,
    "learning_rate_schedule": STEADY,
    "exploration.schedule": STEADY,
}
SMALL: dict[str, Any] = {
    "settings.display": "none",
    "settings.loggers": [],
    "settings.threads": 1,
    "settings.device": "cpu",
    "game.max_num_points": 6,
    "game.max_value": 9,
    "max_rounds": 6,
    "max_grad_norm": None,
    "engine": "tape",
    "log_every_rounds": 2,
    "keep_every_rounds": 4,
    "evaluate_every_rounds": 4,
    "evaluation.episodes": 12,
    "evaluation.max_turns": 6,
}


def small_dqn(**changed: Any) -> Any:
    """Return the config of a run that takes well under a second; sections are changed by path."""
    config = ludus.example("fused_dqn")
    own = dict(SMALL)
    for role in ("host", "agent"):
        if role not in changed:
            own |= {f"{role}.{key}": value for key, value in _ROLE.items()}
    if "game" in changed:
        own = {key: value for key, value in own.items() if not key.startswith("game.")}
    return config.replace(**{**own, **changed})


def prepared(config: Any = None, **given: Any) -> DQNTrainer:
    """Return a trainer that is built and has played its first games, but has not learned."""
    trainer = DQNTrainer(small_dqn() if config is None else config, **given)
    trainer.set_logger(ludus.Logger({"backends": []}))
    trainer.prepare(max_steps=None)
    trainer._warm_up(trainer.run)
    return trainer


class Ran:
    """A run in memory: what was written, what was kept, which stages of which role were done when."""

    def __init__(
        self, config: Any, *more: object, max_steps: int | None = None, **given: Any
    ) -> None:
        seed_everything(derive(config.seed, "global"))
        self.trainer = trainer = DQNTrainer(config, **given)
        self.records: list[Any] = []
        self.kept: dict[str, Mapping[str, Tensor]] = {}
        self.done: list[tuple[str, str, int]] = []
        """Stage, role and round."""
        trainer.set_logger(ludus.Logger({"backends": []}))
        trainer.logger.attach(self)  # type: ignore[attr-defined]
        trainer.add(self, name="ran")
        for number, callback in enumerate(more):
            trainer.add(callback, name=f"more{number}")
        self.result = trainer.fit(max_steps=max_steps, runtime=self._around)

    def _around(self, trainer: Any, request: Request) -> InMemoryRuntime:
        runtime = InMemoryRuntime(trainer, request)
        trainer.run.keep_model = lambda name, weights, note: self.kept.update({name: weights})
        return runtime

    def _note(self, stage: str, run: Any) -> None:
        self.done.append((stage, run.cursor[3].name, run.round("round")))

    def before_sync_target(self, run: Any) -> None:
        self._note("sync_target", run)

    def before_fit(self, run: Any) -> None:
        self._note("fit", run)

    def before_collect(self, run: Any) -> None:
        self._note("collect", run)

    def rounds(self, stage: str, role: str) -> list[int]:
        """Return in which rounds, counted from 0, a role did this."""
        return [number for name, who, number in self.done if (name, who) == (stage, role)]

    def write(self, record: Any) -> None:
        self.records.append(record)

    def close(self) -> None: ...

    def curve(self, metric: str) -> list[float]:
        """Return the values of a metric in the order they were written."""
        return [record.scalars[metric] for record in self.records if metric in record.scalars]

    def at(self, metric: str) -> list[int]:
        """Return after how many updates of both roles a metric was written."""
        return [r.counters.get("opt_steps", 0) for r in self.records if metric in r.scalars]
