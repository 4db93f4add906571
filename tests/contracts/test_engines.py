"""Every engine of this machine executes the update of every trainer as the eager call does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import ludus
from ludus.core.errors import ConfigError, LudusError
from ludus.fit.update import ModelUpdate
from ludus.games.trainers.fused_ppo import PPOTrainer
from ludus.nn.engines import compiled
from ludus.nn.engines.choice import ENGINES, EngineKey, Subject
from ludus.nn.engines.module_guard import Executed
from ludus.nn.engines.tape import Taped
from ludus.nn.groups import Group
from ludus.nn.learner import Learner
from ludus.nn.model import Model
from ludus.nn.optimizer import Adam
from ludus.testing.engine_cases import EngineCase
from ludus.testing.engines import by_name, check_engine, check_followed
from tests.arena.small import small_arena
from tests.arena.small_solo import small_solo
from tests.fit.made import model_update
from tests.games.dqn.small import prepared, small_dqn
from tests.games.ppo.small import small_ppo
from tests.rl.small import small

CPU = torch.device("cpu")
ADAM = Adam(kind="adamw", learning_rate=0.01, beta1=0.9, beta2=0.99, eps=1e-8, weight_decay=0.01)

SGD = {"kind": "sgd", "learning_rate": 0.1, "momentum": 0.9, "nesterov": False, "weight_decay": 0.0}

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")


def agent_of(kind: str, device: str = "cpu") -> EngineCase:
    """Return the update of a small agent that has not learned yet."""
    config = small(kind, engine="eager", max_grad_norm=0.5, **{"settings.device": device})
    trainer: Any = ludus.build_trainer(config)
    trainer.set_logger(ludus.Logger({"backends": []}))
    trainer.prepare(max_steps=None)
    agent = trainer.agent
    trainer.close()

    def state() -> dict[str, Any]:
        return {name: agent.state_dict()[name] for name in ("networks", "totals")}

    learners = [part for part in agent.learned().values() if isinstance(part, Learner)]
    inputs = agent.example_inputs()
    return EngineCase(agent.update, inputs, state, agent.device, agent, learners)


class Pairs:
    """The update of a model, as a function of tensors alone."""

    def __init__(self, update: ModelUpdate) -> None:
        self.update = update

    def learn(self, inputs: Any, targets: Any, rate: Any) -> Any:
        return self.update.update((inputs, targets), rate, None)


def model_of(device: str = "cpu", **changes: Any) -> EngineCase:
    """Return the update of a small model with batch norm, clipping and mean weights."""
    torch.manual_seed(0)
    # Without a bias before the batch norm, which would cancel it: Adam would follow its rounding.
    first = nn.Linear(4, 8, bias=False)
    layers = nn.Sequential(first, nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2))
    options = {"accumulate": 1, "precision": "float32", "ema_decay": 0.9, "max_grad_norm": 0.5}
    model = Model(layers.to(device), loss="mse")
    update = model_update(model, ADAM, **(options | changes))
    x, y = torch.randn(2, 16, 8, device=device).chunk(2)

    def state() -> dict[str, Any]:
        parts = {"model": update.model, "optimizer": update.optimizer, "update": update}
        return {name: dict(part.state_dict()) for name, part in parts.items()}

    inputs = (x[0, :, :4], y[0, :, :2], torch.zeros((), device=device))
    learn, learners = Pairs(update).learn, [update.learner]
    return EngineCase(learn, inputs, state, torch.device(device), model, learners, [model])


def role_of(role: str, device: str = "cpu") -> EngineCase:
    """Return the update of a host or an agent that has not learned yet."""
    # Without a bias before batch norm there is nothing that Adam would follow into its rounding.
    arch = {f"{role}.net_arch": [8]}
    trainer = prepared(small_dqn(engine="eager", **arch, **{"settings.device": device}))
    learner = trainer.learners[role]

    def state() -> dict[str, Any]:
        return {name: learner.state_dict()[name] for name in ("learner", "target", "totals")}

    inputs = learner.example_inputs()
    return EngineCase(learner.update, inputs, state, learner.device, learner, [learner.learner])


def player_of(device: str = "cpu") -> EngineCase:
    """Return the update of a player of CartPole that has not learned yet."""
    trainer = PPOTrainer(small_ppo(engine="eager", **{"settings.device": device}))
    trainer.prepare(max_steps=None)
    ppo = trainer.ppo
    rows, numbers = ppo.example_inputs()
    generator = torch.Generator(device).manual_seed(0)
    rows.normal_(generator=generator)
    rows[:, trainer.fused_game.observation_size("player")] = 1.0  # the move: right
    numbers.fill_(0.01)
    return EngineCase(ppo.update, (rows, numbers), ppo.state_dict, ppo.device, ppo, [ppo.learner])


def agents_of(kind: str, device: str = "cpu") -> EngineCase:
    """Return the update of agents under a protocol that have not learned yet."""
    # Adam would follow gradients that are nothing but rounding.
    changed = {"settings.device": device, "optimizer": SGD}
    config = small_arena(kind, engine="eager", max_grad_norm=0.5, **changed)
    trainer: Any = ludus.build_trainer(config)
    trainer.prepare(max_steps=None)
    rows = trainer._filled(trainer._estimated(trainer._roll_out(0)))
    return _case(trainer, list(rows.values()))


def students_of(device: str = "cpu") -> EngineCase:
    """Return the update of agents that learn alone and have not learned yet."""
    config = small_solo(engine="eager", max_grad_norm=0.5, **{"settings.device": device})
    trainer: Any = ludus.build_trainer(config)
    trainer.prepare(max_steps=None)
    return _case(trainer, trainer._passes(0, 0))


class RateLast:
    """The update of agents, given the learning rate after the batch."""

    def __init__(self, update: Any) -> None:
        self.update = update

    def learn(self, *inputs: torch.Tensor) -> Any:
        *columns, rate = inputs
        return self.update.update(rate, *columns)


def _case(trainer: Any, columns: list[torch.Tensor]) -> EngineCase:
    update, rate = trainer.update, torch.full((), 0.01, device=trainer.device)
    learn, learners = RateLast(update).learn, [update.learner]
    inputs = (*columns, rate)
    return EngineCase(learn, inputs, update.state_dict, trainer.device, update, learners)


SUBJECTS: dict[str, Callable[..., EngineCase]] = {
    "supervised": model_of,
    "active": model_of,  # each round's fit is supervised's
    **{kind: (lambda device="cpu", kind=kind: agent_of(kind, device)) for kind in ("dqn", "iqn")},
    **{kind: (lambda device="cpu", kind=kind: agent_of(kind, device)) for kind in ("sac", "ppo")},
    "fused_dqn": lambda device="cpu": role_of("agent", device),
    "fused_ppo": player_of,
    "vanilla_ppo": lambda device="cpu": agents_of("vanilla_ppo", device),
    "reinforce": lambda device="cpu": agents_of("reinforce", device),
    "spg": lambda device="cpu": agents_of("spg", device),
    "solo_agent": students_of,
}
NOTHING_LEARNED = {"rerun_tests"}
AT_A_PROVIDER = {"pure_text_ei", "pure_text_malt", "pure_text_pg"}
ALWAYS_EAGER = {"text_tuning"}


def test_the_update_of_every_trainer_is_a_subject() -> None:
    """Those that `configs/` has a file for."""
    configs = (Path(__file__).parents[2] / "configs").glob("*.yaml")
    kinds = {path.stem.split("-")[0] for path in configs}
    assert kinds <= {*SUBJECTS} | NOTHING_LEARNED | AT_A_PROVIDER | ALWAYS_EAGER


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_taped_update_is_the_eager_one_to_the_bit(name: str) -> None:
    check_engine(ENGINES["tape"], SUBJECTS[name])


# The losses of TorchRL are slow to trace; of their agents, those that learn alone go through the rest.
TRACED_SLOWLY = ("vanilla_ppo", "reinforce")
NOT_TRACED = ("spg",)  # second derivatives
QUICK = [name for name in SUBJECTS if name not in (*TRACED_SLOWLY, *NOT_TRACED)]
SLOW = [pytest.param("vanilla_ppo", marks=pytest.mark.slow), "reinforce"]


@pytest.mark.parametrize("name", [*QUICK, *SLOW])
def test_a_compiled_update_is_the_eager_one_within_rounding(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trace is run as it is, which costs a tenth of a second."""
    monkeypatch.setattr(compiled, "BACKEND", "eager")
    check_engine(ENGINES["compiled"], SUBJECTS[name], rtol=1e-3, atol=1e-5)


def test_an_engine_that_does_something_else_is_found() -> None:
    def lazy(method: Any, device: torch.device) -> Any:
        calls = []

        def call(*inputs: Any) -> Any:
            calls.append(inputs)
            return method(*calls[0])

        return call

    with pytest.raises(AssertionError, match="what call 2 returned"):
        check_engine(lazy, model_of)


def grouped() -> EngineCase:
    """Return the update of a small model whose first layer can be frozen."""
    return model_of(groups=[Group("body", ("0",))])


ALL = {"mode", "hook", "frozen group", "loaded weights", "shape", "dtype"}
# Agents set the mode themselves, and have no groups.
OF_AGENTS = ALL - {"mode", "frozen group"}


@pytest.mark.parametrize("engine", ["eager", "tape", "auto"])
def test_what_changes_between_two_updates_of_a_model_is_followed(engine: EngineKey) -> None:
    assert check_followed(by_name(engine), grouped) == ALL


@pytest.mark.parametrize("name", [name for name in QUICK if name != "supervised"])
def test_what_changes_between_two_updates_of_an_agent_is_followed(name: str) -> None:
    assert check_followed(by_name("tape"), SUBJECTS[name]) >= OF_AGENTS


@pytest.mark.parametrize("name", ["mode", "hook"])
def test_what_changes_between_two_updates_is_followed_by_the_compiler(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "BACKEND", "eager")
    shown = check_followed(by_name("compiled"), grouped, rtol=1e-3, atol=1e-5, changes=[name])
    assert shown == {name}


class Stale:
    """An engine that has not seen what changed since its first call."""

    def __init__(self, method: Executed, name: str) -> None:
        self.method, self.name = method, name
        self.first: Any = None
        self.taped = Taped(method)

    def __call__(self, *inputs: Any) -> Any:
        if self.first is None:
            self.first = inputs
        if self.name == "shape":
            filled = [x[torch.arange(len(old)) % len(x)] if x.ndim else x
                      for x, old in zip(inputs, self.first, strict=True)]  # fmt: skip
            return self.method(*filled)
        if self.name == "dtype":
            return self.method(
                *[x.to(old.dtype) for x, old in zip(inputs, self.first, strict=True)]
            )
        return self.taped(*inputs)


@pytest.mark.parametrize("name", ["mode", "hook", "shape", "dtype"])
def test_a_tape_that_ignores_a_change_is_found(name: str) -> None:
    with pytest.raises(AssertionError, match=rf"after a change \({name}"):
        check_followed(lambda subject: lambda method: Stale(method, name), grouped, changes=[name])


def put_back(case: EngineCase, name: str) -> Executed:
    """Return an update that undoes what a script did between two calls, as one on copies would."""
    learner, kept = case.learners[0], {}

    def call(*inputs: Any) -> Any:
        if kept and name == "loaded weights":
            learner.load_weights(kept)
        if name == "frozen group":
            learner.set_frozen("body", False)
        result = case.method(*inputs)
        kept.update({n: t.clone() for n, t in learner.weights().items()})
        return result

    return call


@pytest.mark.parametrize("name", ["frozen group", "loaded weights"])
def test_an_engine_on_copies_of_weights_and_switches_is_found(name: str) -> None:
    cases: list[EngineCase] = []

    def make() -> EngineCase:
        cases.append(grouped())
        return cases[-1]

    def execute(subject: Subject) -> Any:
        (own,) = [case for case in cases if case.method == subject.method]
        return lambda method: put_back(own, name)

    with pytest.raises(AssertionError, match=rf"after a change \({name}"):
        check_followed(execute, make, changes=[name])


def test_a_refusal_of_many_lines_or_after_the_update_is_found() -> None:
    def refusing(why: str, *, before: bool) -> Any:
        def execute(subject: Subject) -> Any:
            network, first = subject.modules[0], subject.modules[0].training

            def call(*inputs: Any) -> Any:
                if network.training is not first and before:
                    raise LudusError(why)
                result = subject.method(*inputs)
                if network.training is not first:
                    raise LudusError(why)
                return result

            return lambda method: call

        return execute

    assert check_followed(refusing("no.", before=True), grouped, changes=["mode"]) == {"mode"}
    with pytest.raises(AssertionError, match="mode is refused in many lines"):
        check_followed(refusing("no\nno", before=True), grouped, changes=["mode"])
    with pytest.raises(AssertionError, match="mode, refused"):
        check_followed(refusing("no.", before=False), grouped, changes=["mode"])


def test_an_update_that_changes_nothing_proves_nothing() -> None:
    still = EngineCase(lambda x: x + 1, (torch.zeros(3),), lambda: {"x": torch.ones(2)}, CPU)
    with pytest.raises(AssertionError, match="changed nothing"):
        check_engine(ENGINES["eager"], lambda: still)


def test_a_cuda_graph_without_cuda_is_refused_in_one_sentence() -> None:
    with pytest.raises(ConfigError, match="the device is cpu; choose eager, tape or compiled"):
        ENGINES["graph"](lambda: None, CPU)
