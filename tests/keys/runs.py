"""Tiny runs in memory: what was written, what was kept, every batch and the weights before and after."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

import ludus
from ludus import Logger
from ludus.core.runtime import InMemoryRuntime, Request
from ludus.nn.target import Target
from ludus.seeds import derive, seed_everything
from tests.arena.small import QUIET as ARENA_QUIET, small_arena
from tests.arena.small_solo import small_solo
from tests.games.dqn.small import small_dqn
from tests.games.ppo.small import small_ppo
from tests.rl.small import small
from tests.supervised.conftest import MLP, QUIET, WINE
from tests.text.small_run import small_malt
from tests.text.trainers.runs import TINY, tiny_ei
from tests.text.tuning.small import small_tuning

STEADY = {"kind": "constant", "warmup_steps": 0}
SGD = {"kind": "sgd", "learning_rate": 1.0, "momentum": 0.0, "nesterov": False, "weight_decay": 0.0}
EPOCHS = {
    "max_env_steps": 40, "log_every_epochs": 1, "evaluate_every_epochs": 2, "keep_every_epochs": 0,
    "steps_per_epoch": 4,
    "updates_per_env_step": 0.5, "max_opt_steps": None,
}  # fmt: skip
_RL: dict[str, Any] = {
    "num_envs": 2, "optimizer.learning_rate": 0.01, "learning_rate_schedule": STEADY, "engine": "tape",
    "max_grad_norm": None,
}  # fmt: skip
_OFF_POLICY: dict[str, Any] = {
    "learning_starts": 12, "replay.capacity": 40, "target.sync_every_opt_steps": 3, "target.tau": 1.0,
}  # fmt: skip
_STEPS: dict[str, Any] = {
    "steps.update_every_env_steps": 2, "steps.max_opt_steps": 12, "steps.log_every_opt_steps": 3,
    "steps.evaluate_every_opt_steps": 6, "steps.keep_every_opt_steps": 0,
}  # fmt: skip
_PPO: dict[str, Any] = {
    "rollout_steps": 8, "num_epochs": 2, "minibatches": 2, "clip.schedule": STEADY,
    "max_env_steps": 48, "log_every_epochs": 1, "evaluate_every_epochs": 2,
    "keep_every_epochs": 0,
}  # fmt: skip
# One round that labels the whole pool fits as supervised training does.
_ACTIVE: dict[str, Any] = {
    "max_rounds": 1, "initial_labels": 106, "queries": 1, "round_start": "warm", "calibration": None
}  # fmt: skip


def tiny(kind: str, **changed: Any) -> Any:
    """Return the config of a run of a few steps; sections are changed by path."""
    if kind in ("supervised", "active"):
        own = {
            "data": WINE, "model": MLP, "batch_size": 16, "max_epochs": 2, "engine": "tape",
            "ema_decay": None, "max_grad_norm": None, "evaluation.patience": None, "evaluation.keep": 0,
            "log_every_opt_steps": 0, "learning_rate_schedule": STEADY, **QUIET,
        }  # fmt: skip
        return ludus.example(kind).replace(
            **{**own, **(_ACTIVE if kind == "active" else {}), **changed}
        )
    if kind in ("vanilla_ppo", "reinforce", "spg"):
        return small_arena(kind, **changed)
    if kind == "solo_agent":
        return small_solo(**changed)
    if kind == "rerun_tests":
        return ludus.example(kind).replace(**{**ARENA_QUIET, **changed})
    if kind == "pure_text_ei":
        return tiny_ei(**changed)
    if kind == "pure_text_malt":
        return small_malt(**{**TINY, **changed})
    if kind == "pure_text_pg":
        return ludus.example(kind).replace(**changed)
    if kind == "text_tuning":
        return small_tuning(**changed)
    if kind == "fused_dqn":
        return small_dqn(**changed)
    if kind == "fused_ppo":
        return small_ppo(**changed)
    own = dict(_RL)
    if kind == "ppo":
        own |= _PPO
    else:
        own |= _OFF_POLICY if changed.get("counted_in") == "epochs" else _OFF_POLICY | _STEPS
    if kind in ("dqn", "iqn"):
        own["exploration.schedule"] = STEADY
    return small(kind, **{**own, **changed})


class Outcome:
    """What came of one run."""

    def __init__(self, config: Any, evaluator: Any = None) -> None:
        torch.set_num_threads(1)
        seed_everything(derive(config.seed, "global"))
        trainer: Any = ludus.build_trainer(config)
        self.trainer, self.config = trainer, config
        self.records: list[Any] = []
        self.kept: dict[str, Mapping[str, Tensor]] = {}
        self.batches: list[Any] = []
        self.moments: list[dict[str, Tensor]] = []
        """The weights before the first update and after each."""
        trainer.set_logger(Logger({"backends": []}))
        trainer.logger.attach(self)
        if evaluator is not None:
            trainer.set_evaluator(evaluator)
        trainer.add(self, name="outcome")
        self._learn()
        self.result = trainer.fit(runtime=self._around)
        if not hasattr(trainer, "train_step"):
            self.moments.append(weights_of(trainer))

    def _around(self, trainer: Any, request: Request) -> InMemoryRuntime:
        runtime, run = InMemoryRuntime(trainer, request), trainer.run
        run.keep_model = lambda name, weights, note: self.kept.update({name: weights})
        run.recall_model = self.kept.__getitem__
        return runtime

    def _learn(self) -> None:
        if not hasattr(self.trainer, "train_step"):
            return
        train_step = self.trainer.train_step

        def watched(batch: Any, batch_idx: int) -> Any:
            self.batches.append(_copied(batch))
            found = train_step(batch, batch_idx)
            self.moments.append(weights_of(self.trainer))
            return found

        self.trainer.train_step = watched

    def before_train(self) -> None:
        self.moments.append(weights_of(self.trainer))

    def write(self, record: Any) -> None:
        self.records.append(record)

    def close(self) -> None: ...

    @property
    def agent(self) -> Any:
        return self.trainer.agent

    @property
    def counters(self) -> Mapping[str, int]:
        return self.result.counters

    @property
    def weights(self) -> Tensor:
        """All weights at the end, in one vector."""
        return torch.cat([tensor.flatten() for tensor in self.moments[-1].values()])

    def curve(self, metric: str) -> list[float]:
        """Return the values of a metric in the order they were written."""
        return [record.scalars[metric] for record in self.records if metric in record.scalars]

    def at(self, metric: str) -> list[int]:
        """Return the optimisation steps at which a metric was written."""
        return [r.counters.get("opt_steps", 0) for r in self.records if metric in r.scalars]


def weights_of(trainer: Any) -> dict[str, Tensor]:
    """Return a copy of every network's weights by its name."""
    if hasattr(trainer, "agents"):
        return {name: weight.detach().clone() for name, weight in trainer.agents.named_parameters()}
    if not hasattr(trainer, "agent"):
        named = trainer.flat.by_name(trainer.flat.vectors)
        return {"model": torch.cat([weight.detach().flatten() for weight in named.values()])}
    return {
        name: (part.vectors[0] if isinstance(part, Target) else part.flat.vectors[0])
        .detach()
        .clone()
        for name, part in trainer.agent.learned().items()
    }


def _copied(batch: Any) -> Any:
    if isinstance(batch, Tensor):
        return batch.clone()
    if isinstance(batch, Mapping):
        return {name: _copied(value) for name, value in batch.items()}
    if hasattr(batch, "_fields"):
        return type(batch)(*map(_copied, batch))
    if isinstance(batch, dict):
        return {name: _copied(one) for name, one in batch.items()}
    return [*map(_copied, batch)] if isinstance(batch, tuple | list) else batch


@functools.cache
def _cached(kind: str, text: str) -> Outcome:
    return Outcome(tiny(kind, **json.loads(text)))


def run(kind: str, **changed: Any) -> Outcome:
    """Return the outcome of a tiny run with these changes; the same run is made once."""
    return _cached(kind, json.dumps(changed, sort_keys=True))


def differ(one: Outcome, two: Outcome) -> bool:
    """Return whether two runs came to other weights."""
    same = one.weights.shape == two.weights.shape and torch.equal(one.weights, two.weights)
    return not same


def rows_of(outcome: Outcome) -> Any:
    """Return all that the replay buffer holds, split into its columns."""
    trainer = outcome.trainer
    buffer = trainer.replay_buffer
    return trainer.agent.layout.split(buffer._rows[: buffer.size])
