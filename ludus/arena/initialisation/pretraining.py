"""Pretraining: the bodies of agents first learn to classify the data, supervised.

Each body learns under a solo head, as in the trainer kind `solo_agent`; then the heads are dropped, and the
agents of the run take the bodies over. It is a subtree of the run's own plan, so it resumes exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from ludus.arena.agents.combined import CombinedAgents
from ludus.arena.build import make_agents
from ludus.arena.rl_config import PretrainingParameters, RlHyperParameters
from ludus.arena.scenario import Scenario, ScenarioInstance
from ludus.arena.solo.alone import Alone
from ludus.arena.solo.students import SoloUpdate, Students, passes_over
from ludus.config.registry import find
from ludus.core import Repeat, Run, Stage, states
from ludus.core.errors import CheckpointError
from ludus.judge.divergence import DivergenceGuard
from ludus.nn.module_state import ModuleState
from ludus.nn.swapped_weights import restored
from ludus.seeds import derive, forked

GUARD = DivergenceGuard(remedy="look at the data of the scenario")


class Pretraining:
    """Trains the bodies; a part while it runs."""

    def __init__(
        self,
        config: RlHyperParameters,
        section: PretrainingParameters,
        instance: ScenarioInstance,
    ) -> None:
        self._section, self._agents, self._seed = section, instance.agents, config.seed
        handler, device = instance.protocol_handler, instance.device
        self._names = [name for name in handler.agent_names if name in section.agents]
        alone = Alone(
            self._names,
            max_message_rounds=handler.max_message_rounds,
            num_channels=len(handler.message_channel_names),
        )
        train = instance.train_dataset.to(device)
        self._validation = instance.datasets.validation.to(device)
        scenario: Scenario = find("scenario", config.scenario.kind)(config.scenario)  # type: ignore[attr-defined]
        members = make_agents(
            config,
            alone,
            dict.fromkeys(alone.agent_names, scenario.seen(train, alone)),
            trainer_type="solo_agent",
            use_shared_body=True,
        )
        students = Students(
            CombinedAgents(members, alone, list(train.data)).to(device),
            max_message_rounds=handler.max_message_rounds,
        )
        students.eval()
        self._students: Students | None = students
        self._update: SoloUpdate | None = SoloUpdate(
            students,
            section.optimizer,
            max_grad_norm=config.max_grad_norm,
            highest_rate=section.optimizer.learning_rate,
            rates={name: dict.fromkeys(one.rates(), 1.0) for name, one in members.items()},
        )
        self._passes = passes_over(students, train, section.batch_size, config.seed)
        self._update.choose(config.engine)

    def nodes(self) -> tuple[Stage | Repeat, ...]:
        """Return the nodes of the plan before training."""
        step = Stage(name="pretrain_step", work=self._train_step)
        batches = Repeat(name="pretraining_batch", times=self._passes.count, body=(step,))
        record = Stage(name="record_pretraining", work=self._record)
        passes = Repeat(name="pretraining", times=self._section.iterations, body=(batches, record))
        names = ", ".join(self._names)
        return (
            Stage(name="begin_pretraining", work=self._begin, note=f"the bodies of {names}"),
            passes,
            Stage(name="end_pretraining", work=self._end, note="solo heads are dropped"),
        )

    def _at_work(self) -> tuple[Students, SoloUpdate]:
        if self._students is None or self._update is None:
            raise CheckpointError(
                "pretraining is under way, but its weights are not there; resume from a checkpoint that"
                " holds them"
            )
        return self._students, self._update

    def _begin(self, run: Run) -> None:
        """Copy the bodies of the agents, which may have been loaded."""
        students, _ = self._at_work()
        for name in self._names:
            for body in _bodies(self._agents.member(name))[:1]:
                _copy(body, students.agents.member(name).get_submodule("body"))

    def _train_step(self, run: Run) -> None:
        _, update = self._at_work()
        columns = self._passes(run.round("pretraining"), run.round("pretraining_batch"))
        with torch.enable_grad():
            update.step(columns, learning_rate=self._section.optimizer.learning_rate)
        run.counters["examples"] += len(columns[-1])

    def _record(self, run: Run) -> None:
        students, update = self._at_work()
        found = update.take_metrics()
        GUARD.check(found, 0)
        # Separate names: the report draws metrics with the same last word in one chart, by one counter.
        metrics = {_named(name): one for name, one in found.items()}
        with restored(students.agents), forked(derive(self._seed, "arena/pretraining/evaluated")):
            for name in self._names:
                metrics[f"pretraining/eval/{name}/solo_accuracy"] = students.accuracy(
                    name,
                    self._validation,
                    self._section.batch_size,
                    is_interrupted=lambda: run.interrupted,
                )
        run.record(metrics)
        run.log.write(run)

    def _end(self, run: Run) -> None:
        """Copy the bodies to the agents, and drop everything else."""
        students, _ = self._at_work()
        for name in self._names:
            source = students.agents.member(name).get_submodule("body")
            for body in _bodies(self._agents.member(name)):
                _copy(source, body)
        self._students = self._update = None

    def inexact_because(self) -> list[str]:
        """Return the state that the students change without saving it, while they exist."""
        return [] if self._update is None else self._update.inexact_because()

    def state_dict(self) -> dict[str, Any]:
        """Return the students and their optimizer; None once they are dropped."""
        return {"update": None if self._update is None else self._update.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a saved state."""
        states.check_keys(state, "update")
        if state["update"] is None:
            self._students = self._update = None
            return
        _, update = self._at_work()
        with states.within("update"):
            update.load_state_dict(states.mapping(state, "update"))


def make_pretraining(config: RlHyperParameters, instance: ScenarioInstance) -> Pretraining | None:
    """Return the pretraining of a config; None where it has none."""
    section = config.pretraining
    if section is None:
        return None
    return Pretraining(config, section, instance)


def _bodies(agent: nn.Module) -> list[nn.Module]:
    """Return the body of an agent, and that of its value where it has another."""
    return [one for name, one in agent.named_children() if name in ("body", "value_body")]


def _copy(source: nn.Module, target: nn.Module) -> None:
    ModuleState(target, without=()).load(ModuleState(source, without=()).tensors())


def _named(metric: str) -> str:
    """Return the name of a solo metric in a run that continues with RL."""
    *path, last = metric.removeprefix("train/").split("/")
    return "/".join(["pretraining", *path, f"solo_{last}"])
