"""Optimizers of torch's kind: given by a script or registered, saved by name, guarded and resumed."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn

import ludus
from ludus import Trainer, register
from ludus.core.errors import ConfigError, LudusError
from ludus.nn.groups import Group
from ludus.nn.learner import Learner
from ludus.nn.optimizer import OptimizerConfig
from ludus.nn.optimizers._table import GivenOptimizer
from ludus.nn.torch_optimizer import TorchOptimizer
from ludus.testing import trainers
from tests.nn.test_more_optimizers import losses, network, rate
from tests.supervised.conftest import Tiny, history, lines

RATE = 0.02
GIVEN = GivenOptimizer.Config(kind="given", learning_rate=RATE)


class Signs(torch.optim.Optimizer):
    """Moves by the sign of a mean, which it keeps with a count, nested, and a count of its own."""

    def __init__(self, params: Any, lr: float = 0.1, beta: float = 0.9) -> None:
        super().__init__(params, {"lr": lr, "beta": beta, "num_seen": 0})
        self.num_calls = 0

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        self.num_calls += 1
        for group in self.param_groups:
            group["num_seen"] += 1
            for one in group["params"]:
                if one.grad is None:
                    continue
                kept = self.state[one]
                if not kept:
                    kept |= {"means": {"first": torch.zeros_like(one)}, "count": 0}
                kept["count"] += 1
                mean = kept["means"]["first"]
                mean.lerp_(one.grad, 1 - group["beta"])
                # The counts decide too, so that forgetting one would show.
                far = 1 / (kept["count"] + group["num_seen"] + self.num_calls)
                one.sub_(group["lr"] * far * mean.sign())


def learner(make: Any, **more: Any) -> Learner:
    return Learner(network(), GIVEN, given=make, **{"max_grad_norm": None, **more})


def by_hand(make: Any, limit: float | None) -> nn.Module:
    module = network()
    optimizer = make(list(module.parameters()))
    for step, loss_fn in enumerate(losses()):
        optimizer.zero_grad()
        loss_fn(module)[0].backward()
        if limit is not None:
            nn.utils.clip_grad_norm_(module.parameters(), limit)
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        optimizer.step()
    return module


MAKES: dict[str, Any] = {
    "adamw": lambda params: torch.optim.AdamW(params, lr=RATE, weight_decay=0.1),
    "adamax": lambda params: torch.optim.Adamax(params, lr=RATE),
    "nadam": lambda params: torch.optim.NAdam(params, lr=RATE),
    "signs": lambda params: Signs(params, lr=RATE),
}
each_make = pytest.mark.parametrize("make", MAKES.values(), ids=MAKES.keys())


@pytest.mark.parametrize("limit", [None, 0.3])
@each_make
def test_it_takes_the_steps_that_it_takes_by_hand(make: Any, limit: float | None) -> None:
    found, expected = learner(make, max_grad_norm=limit), by_hand(make, limit)
    for step, loss_fn in enumerate(losses()):
        found.step(loss_fn, torch.tensor(rate(step)))
    weights = found.flat.by_name(found.flat.vectors)
    named = {name: one.detach() for name, one in expected.named_parameters()}
    torch.testing.assert_close(weights, named, rtol=1e-4, atol=1e-6)
    # The parameters are still views of the vector, and their gradients too.
    assert all(one.grad is not None for one in found.module.parameters())
    assert found.optimizer.num_steps.item() == 20


@each_make
def test_a_step_along_nothing_finite_is_not_taken(make: Any) -> None:
    one, other = learner(make), learner(make)
    for step, loss_fn in enumerate(losses(6)):
        if step == 3:
            before = copy.deepcopy(one.state_dict())
            _, norm, _ = one.step(lambda forward: (forward(torch.full((1, 4), torch.nan)).sum(), None),
                                     torch.tensor(0.1))  # fmt: skip
            assert not torch.isfinite(norm)
            assert_same(one.state_dict(), before)
        for each in (one, other):
            each.step(loss_fn, torch.tensor(rate(step)))
    assert torch.equal(one.flat.vectors[0], other.flat.vectors[0])


def assert_same(one: Any, other: Any) -> None:
    """Compare two trees of state to the bit, whatever they hold."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, list | tuple):
        for mine, theirs in zip(one, other, strict=True):
            assert_same(mine, theirs)
    elif isinstance(one, Tensor):
        assert torch.equal(one, other)
    else:
        assert one == other


class Explodes(Signs):
    """Puts a weight out of the numbers there are at its third step."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        super().step()
        if self.num_calls == 3:
            self.param_groups[0]["params"][0].fill_(torch.inf)


def test_a_step_after_which_a_weight_is_not_finite_is_taken_back() -> None:
    found = learner(lambda params: Explodes(params, lr=RATE))
    for loss_fn in losses(2):
        found.step(loss_fn, torch.tensor(RATE))
    before = copy.deepcopy(found.state_dict())
    _, norm, _ = found.step(losses(1)[0], torch.tensor(RATE))
    assert not torch.isfinite(norm)
    assert_same(found.state_dict(), before)


def test_groups_keep_their_rates_and_freeze() -> None:
    groups = [Group("first", ("0",), rate=0.1), Group("last", ("2",), is_frozen=True)]
    found = learner(MAKES["adamw"], groups=groups)
    start = copy.deepcopy(found.state_dict()["weights"])
    found.step(losses(1)[0], torch.tensor(RATE))
    after = found.state_dict()["weights"]
    assert torch.equal(after["2.weight"], start["2.weight"])
    assert found.state_dict()["optimizer"]["state"].keys() == {"0.weight", "0.bias"}
    whole = learner(MAKES["adamw"])
    whole.step(losses(1)[0], torch.tensor(RATE * 0.1))
    torch.testing.assert_close(after["0.weight"], whole.state_dict()["weights"]["0.weight"])
    found.set_frozen("last", False)
    found.step(losses(1)[0], torch.tensor(RATE))
    assert not torch.equal(found.state_dict()["weights"]["2.weight"], start["2.weight"])


@each_make
def test_a_saved_one_goes_on_exactly(make: Any) -> None:
    one, two = learner(make, ema_decay=0.9), learner(make, ema_decay=0.9)
    for step, loss_fn in enumerate(losses(10)):
        if step == 5:
            two.load_state_dict(copy.deepcopy(one.state_dict()))
        one.step(loss_fn, torch.tensor(rate(step)))
        if step >= 5:
            two.step(loss_fn, torch.tensor(rate(step)))
    assert_same(two.state_dict(), one.state_dict())


def test_a_state_of_another_network_or_optimizer_is_refused() -> None:
    one = learner(MAKES["adamw"])
    one.step(losses(1)[0], torch.tensor(RATE))
    state = copy.deepcopy(one.state_dict()["optimizer"])
    two = learner(MAKES["adamw"]).optimizer
    state["state"]["0.weight"]["exp_avg"] = torch.zeros(3)
    with pytest.raises(LudusError, match=r"'state/0.weight/exp_avg' is .* of \(3,\)"):
        two.load_state_dict(state)
    with pytest.raises(LudusError, match="groups"):
        learner(MAKES["signs"]).optimizer.load_state_dict(one.state_dict()["optimizer"])


class Unsaved(Signs):
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        self.state[self.param_groups[0]["params"][0]]["thing"] = object()


class Slow(Signs):
    """Keeps a mean of the weights as parameters of its own, as wrappers of optimizers do."""

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, lr=lr)
        self.slow = [nn.Parameter(one.detach().clone()) for one in self.param_groups[0]["params"]]


class Teaches(Signs):
    """Keeps a network of its own, which is callable as functions are."""

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, lr=lr)
        self.teacher = nn.Linear(2, 2)


class Refers(Signs):
    """Keeps what is trained under another name, a function, and a plain mean, of which one is saved."""

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, lr=lr)
        self.everything = [one for group in self.param_groups for one in group["params"]]
        self.rule, self.means = torch.sign, [torch.zeros_like(one) for one in self.everything]


class Global(Signs):
    """Keeps a number for all parameters under a key that is none of them."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        kept = self.state["all"]  # type: ignore[index]
        kept["count"] = kept.get("count", 0) + 1
        for one in self.param_groups[0]["params"]:
            one.sub_(self.param_groups[0]["lr"] * kept["count"] * one.grad)


class Pairs(Signs):
    """Keeps each parameter beside its mean, in one attribute."""

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, lr=lr)
        self.pairs = [(one, torch.zeros_like(one)) for one in self.param_groups[0]["params"]]

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for one, mean in self.pairs:
            if one.grad is not None:
                one.sub_(self.param_groups[0]["lr"] * mean.lerp_(one.grad, 0.5))


class Views(Signs):
    """Keeps the means of parameters as views of one vector, which it changes as a whole."""

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, lr=lr)
        sizes = [one.numel() for one in self.param_groups[0]["params"]]
        self.vector = torch.zeros(sum(sizes))
        for one, view in zip(self.param_groups[0]["params"], self.vector.split(sizes), strict=True):
            self.state[one]["mean"] = view.view_as(one)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        self.vector.add_(1.0)
        for one in self.param_groups[0]["params"]:
            one.sub_(self.param_groups[0]["lr"] * self.state[one]["mean"])


class Later(Signs):
    """Sets an option of its group at the first step."""

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        self.param_groups[0]["warm"] = self.param_groups[0].get("warm", 0) + 1
        super().step()


class Replaces(Signs):
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for one in self.param_groups[0]["params"]:
            one.data = one.data.clone()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda params: Unsaved(params, lr=RATE),
            r"Unsaved keeps what no checkpoint can hold: .*thing",
        ),
        (lambda params: Slow(params, lr=RATE), "Slow keeps a Parameter of its own in 'slow'"),
        (lambda params: Teaches(params, lr=RATE), "keeps a Linear of its own in 'teacher'"),
        (
            lambda params: Global(params, lr=RATE),
            "Global, saved and loaded, moves 0.weight otherwise",
        ),
        (
            lambda params: Pairs(params, lr=RATE),
            "Pairs, saved and loaded, moves 0.weight otherwise",
        ),
        (
            lambda params: Views(params, lr=RATE),
            "Views, saved and loaded, moves 0.weight otherwise",
        ),
        (lambda params: torch.optim.LBFGS(params, lr=RATE), "asks for a closure"),
        (lambda params: "x", "the optimizer that was given is a str; give a class"),
        (lambda params: Signs(params[:1], lr=RATE), "holds 1 of the 4 parameters"),
        (lambda params: Signs(params, lr=0.7), r"lr of Signs is 0.7, .* give set_optimizer lr=0.7"),
    ],
)
def test_what_cannot_move_the_weights_is_refused_before_work_begins(make: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        learner(make)


def test_an_option_that_the_first_step_sets_is_saved_and_loaded() -> None:
    found = learner(lambda params: Later(params, lr=RATE))
    found.step(losses(1)[0], torch.tensor(RATE))
    again = learner(lambda params: Later(params, lr=RATE))
    again.load_state_dict(found.state_dict())
    assert again.optimizer.state_dict()["groups"][0]["warm"] == 1


def test_attributes_are_saved_but_for_code_and_the_parameters_themselves() -> None:
    found = learner(lambda params: Refers(params, lr=RATE))
    saved = found.optimizer.state_dict()["attributes"]
    assert saved.keys() == {"num_calls", "means"}


def test_one_that_exchanges_parameters_is_refused_at_its_first_step() -> None:
    found = learner(lambda params: Replaces(params, lr=RATE))
    with pytest.raises(LudusError, match="put another tensor in the place of the parameter"):
        found.step(losses(1)[0], torch.tensor(RATE))


def given(tiny: Tiny, **changes: Any) -> Trainer:
    trainer = Trainer(tiny(engine="auto", **changes))
    trainer.set_optimizer(Signs, lr=RATE, beta=0.8)
    return trainer


def test_a_script_gives_a_class_and_its_options(tiny: Tiny, tmp_path: Path) -> None:
    linear = {"kind": "linear", "warmup_steps": 0, "final": 0.0, "total_steps": 14}
    trainer = given(tiny, max_epochs=2, log_every_opt_steps=1, learning_rate_schedule=linear)
    result = trainer.fit(root=str(tmp_path))
    rates = history(result.run_dir, "train/learning_rate")
    assert rates == pytest.approx([RATE * (1 - step / 14) for step in range(14)])
    optimizer: Any = trainer.optimizer
    assert isinstance(optimizer, TorchOptimizer)
    assert optimizer.made.param_groups[0]["beta"] == 0.8
    assert optimizer.made.param_groups[0]["lr"] == pytest.approx(rates[-1])
    assert trainer.config.optimizer.kind == "given"
    assert trainer.config.engine == "eager"
    told = [line for line in lines(result.run_dir, "events.jsonl") if line["event"] == "engine"]
    assert "Signs is one of torch, whose steps no engine replays" in str(told)
    with pytest.raises(ConfigError, match="set_optimizer was given a int"):
        trainer.set_optimizer(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("engine", ["tape", "compiled"])
def test_an_engine_that_cannot_call_it_is_refused(tiny: Tiny, tmp_path: Path, engine: str) -> None:
    trainer = Trainer(tiny(engine=engine))
    trainer.set_optimizer(Signs, lr=RATE)
    with pytest.raises(
        ConfigError, match=f"'engine' is {engine}, but the optimizer Signs is one of"
    ):
        trainer.fit(root=str(tmp_path))


def test_a_kind_of_a_script_that_gives_none_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    section = {"kind": "given", "learning_rate": 0.5}
    with pytest.raises(ConfigError, match="the script gave none; call"):
        Trainer(tiny(optimizer=section)).fit(root=str(tmp_path))
    with pytest.raises(ConfigError, match="only supervised and active runs"):
        ludus.example("sac").replace(optimizer=section)


def test_the_given_kind_starts_from_its_learning_rate(tiny: Tiny, tmp_path: Path) -> None:
    for lr in (0.01, 0.05):
        trainer = Trainer(tiny(engine="eager", optimizer={"kind": "given", "learning_rate": lr}))
        trainer.set_optimizer(lambda params, lr=lr: Signs(params, lr=lr))
        run_dir = trainer.fit(root=str(tmp_path), name=str(lr)).run_dir
        assert history(run_dir, "train/learning_rate")[-1] == pytest.approx(lr)


@register("optimizer", "signs")
class SignsKind:
    class Config(OptimizerConfig):
        kind: Literal["signs"]
        """Move by signs."""
        beta: float
        """How slowly the mean forgets."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def make(self, parameters: Any) -> torch.optim.Optimizer:
        return Signs(parameters, lr=self.config.learning_rate, beta=self.config.beta)


REGISTERED = {"kind": "signs", "learning_rate": RATE, "beta": 0.5}


def registered(tiny: Tiny, **changes: Any) -> Trainer:
    return Trainer(tiny(optimizer=REGISTERED, engine="auto", **changes))


def test_a_registered_one_is_a_kind_like_any_other(tiny: Tiny, tmp_path: Path) -> None:
    trainer = registered(tiny)
    trainer.fit(root=str(tmp_path))
    optimizer: Any = trainer.optimizer
    assert optimizer.made.param_groups[0]["beta"] == 0.5
    with pytest.raises(ConfigError, match="only supervised and active runs"):
        ludus.example("dqn").replace(optimizer=REGISTERED)


SAVED: dict[str, Any] = {
    "settings.checkpoint.every_stages": 3, "accumulate": 2, "ema_decay": 0.9, "max_epochs": 3,
}  # fmt: skip


@pytest.mark.parametrize("make", [given, registered])
def test_a_killed_run_ends_as_if_never_killed(make: Any, tiny: Tiny, tmp_path: Path) -> None:
    trainers.check_kill_anywhere(lambda: make(tiny, **SAVED), tmp_path, max_kills=2)
    trainers.check_all_state_is_declared(lambda: make(tiny, **SAVED), tmp_path)
    inert = ["model", "update", "train_data", "write_log", "milestones", "run", "random", "logger"]
    trainers.check_negative_controls(lambda: make(tiny, **SAVED), tmp_path, inert=inert)


def test_a_resume_without_it_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    given(tiny).fit(max_steps=5, root=str(tmp_path), name="one")
    with pytest.raises(LudusError, match="optimizer"):
        Trainer(tiny(engine="auto")).fit(max_steps=9, root=str(tmp_path), name="one", resume=True)


def test_a_resume_with_other_options_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    given(tiny, max_epochs=1).fit(root=str(tmp_path), name="run")
    other = Trainer(tiny(engine="auto", max_epochs=2))
    other.set_optimizer(Signs, lr=RATE, beta=0.7)
    with pytest.raises(LudusError, match=r"Signs\(beta=0.8\)"):
        other.fit(root=str(tmp_path), name="run", resume=True)
