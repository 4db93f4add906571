"""PPO in kernels against its plain functions: on a GPU, or in Triton's interpreter (TRITON_INTERPRET=1)."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ludus.core.errors import LudusError
from ludus.core.runtime import InMemoryRuntime
from ludus.games.elementwise import ElementwiseGame, Numbers
from ludus.games.kernels.ppo import rounds
from ludus.games.kernels.ppo.iteration import PpoNumbers
from ludus.games.kernels.ppo.tuning import Tuning
from ludus.games.kernels.triton_path import why_no_kernels
from ludus.games.ppo.actor_critic import make_actor_critic
from ludus.games.ppo.counter_random import keys_of
from ludus.games.ppo.shuffle import constants, rows_in_order
from ludus.games.rules.acrobot import Acrobot
from ludus.games.rules.cartpole import CartPole
from ludus.games.speed import HostSyncs
from ludus.games.trainers import fused_ppo
from ludus.games.trainers.fused_ppo import PPOTrainer
from ludus.losses.distributions import categorical_entropy, categorical_log_probs
from ludus.losses.ppo import clipped_policy_loss, normalised, value_loss
from ludus.nn.distributions import Categorical
from ludus.nn.learner import Learner
from ludus.nn.optimizer import Adam
from tests.games.ppo import plain
from tests.games.ppo.small import small_ppo

IS_GPU = torch.cuda.is_available()
HERE = torch.device("cuda" if IS_GPU else "cpu")
pytestmark = [
    pytest.mark.skipif(why_no_kernels(HERE) is not None, reason="needs a GPU, or the interpreter"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
NUMBERS: dict[str, Any] = {
    "num_games": 8, "rollout_steps": 16, "num_epochs": 2, "num_minibatches": 2, "reward_scale": 0.5,
    "gamma": 0.98, "gae_lambda": 0.9, "value_clip": None, "value_coef": 0.5, "entropy_coef": 0.01,
    "normalise_advantage": True,
}  # fmt: skip
CASES: list[dict[str, Any]] = [
    {},
    {"num_games": 4, "value_clip": 0.2, "widths": [24, 16]},
    {
        "game": CartPole(max_steps=5),
        "num_games": 32,
        "rollout_steps": 8,
        "normalise_advantage": False,
        "optimizer": "adamw",
    },
    {"game": Acrobot(max_steps=9), "num_games": 16, "widths": [16, 40], "reward_scale": 1.0},
]
if IS_GPU:
    CASES += [
        {"num_games": 256, "rollout_steps": 32, "widths": [64, 64], "num_minibatches": 4},
        {"num_games": 512, "rollout_steps": 64, "widths": [128, 128], "value_clip": 0.1},
    ]


class Setup:
    """One learner with its games, and the kernels on it; `again` is the same without kernels."""

    def __init__(self, **changed: Any) -> None:
        self.made_with = changed
        numbers = {**NUMBERS, **{key: changed[key] for key in changed if key in NUMBERS}}
        self.game: ElementwiseGame = changed.get("game", CartPole(max_steps=12))
        self.numbers = PpoNumbers(**numbers)
        torch.manual_seed(1)
        network = make_actor_critic(
            self.game.num_features, self.game.moves, changed.get("widths", [16, 32])
        )
        with torch.no_grad():
            network.policy[-1].weight.mul_(50)
        kind = changed.get("optimizer", "adam")
        optimizer = Adam(
            kind=kind, learning_rate=1e-3, beta1=0.9, beta2=0.999, eps=1e-5,
            weight_decay=0.01 if kind == "adamw" else 0.0,
        )  # fmt: skip
        self.learner = Learner(network.to(HERE), optimizer, max_grad_norm=0.5)
        self.keys = keys_of(3)
        count = self.numbers.num_games
        self.live = plain.begin(self.game, self.keys, num_games=count, device=HERE)

    def again(self) -> Setup:
        return Setup(**self.made_with)

    def kernels(self) -> Any:
        from ludus.games.kernels.ppo.engine import PpoKernels

        tuning = None if IS_GPU else Tuning(rows=16, warps=4, programs=3, pieces=64)
        return PpoKernels(
            self.game, self.learner, self.live, self.keys, self.numbers, tuning=tuning
        )

    @property
    def weights(self) -> Tensor:
        return self.learner.flat.vectors[0]

    def iterate_plainly(self) -> tuple[plain.Rollout, plain.Rows, Tensor]:
        numbers, net, iteration = self.numbers, self.learner.module, self.live.iteration
        actions = Categorical(self.game.moves.count)
        found, self.live = plain.rollout(
            self.game, net, actions, self.live, self.keys, steps=numbers.rollout_steps
        )
        rows = plain.estimate(
            net, found, gamma=numbers.gamma, gae_lambda=numbers.gae_lambda,
            reward_scale=numbers.reward_scale,
        )  # fmt: skip
        metrics = plain.update(
            self.learner, actions, rows, self.keys, iteration, numbers,
            learning_rate=torch.tensor(1e-3, device=HERE), clip=torch.tensor(0.2, device=HERE),
        )  # fmt: skip
        return found, rows, metrics


def iterate(kernels: Any, count: int = 1) -> None:
    kernels.iterate(count, learning_rate=lambda _: 1e-3, clip=lambda _: 0.2)


@pytest.mark.parametrize("changed", CASES)
def test_an_iteration_is_that_of_the_plain_functions(changed: dict[str, Any]) -> None:
    own = Setup(**changed)
    other, kernels = own.again(), own.kernels()
    iterate(kernels)
    found, rows, metrics = other.iterate_plainly()
    assert (found.ended | found.truncated).any()
    features = own.game.num_features
    records = kernels._records[: own.numbers.num_rows]
    assert torch.equal(records[:, features].long(), rows.actions)
    assert torch.allclose(records[:, :features], rows.obs, atol=1e-4)
    assert torch.allclose(records[:, features + 1], rows.log_probs, atol=2e-3)
    assert torch.allclose(records[:, features + 2], rows.advantages, atol=5e-3)
    assert torch.allclose(records[:, features + 3], rows.values, atol=3e-3)
    for name, value in other.live.state.items():
        assert torch.allclose(own.live.state[name].float(), value.float(), atol=1e-4)
    assert torch.allclose(own.live.returns, other.live.returns, atol=1e-5)
    assert int(own.live.iteration) == 1
    assert torch.allclose(own.weights, other.weights, atol=4e-4)
    count = own.learner.optimizer.num_steps
    assert int(count) == own.numbers.num_updates == int(other.learner.optimizer.num_steps)
    totals = kernels.take_totals()
    assert torch.allclose(totals.metrics / own.numbers.num_updates, metrics, atol=5e-3, rtol=5e-3)
    assert totals.num_episodes == found.num_episodes
    assert torch.isclose(totals.sum_returns, found.sum_returns)
    assert totals.sum_lengths == found.sum_lengths
    assert not kernels.totals.any()


@pytest.mark.parametrize("changed", CASES)
def test_gradients_are_those_of_autograd_in_float64(changed: dict[str, Any]) -> None:
    own = Setup(**changed)
    kernels, before = own.kernels(), own.weights.clone()
    net = copy.deepcopy(own.learner.module).double()
    iterate(kernels)
    numbers, features = own.numbers, own.game.num_features
    kernels._turn.zero_()
    # As if the networks had moved far: some ratios and values leave the clip on either side.
    noise = torch.sin(torch.arange(len(kernels._records), device=HERE).float())
    kernels._records[:, features + 1] += 0.5 * noise
    kernels._records[:, features + 3] += 0.5 * noise
    for epoch, nth in ((0, 0), (numbers.num_epochs - 1, numbers.num_minibatches - 1)):
        own.weights.copy_(before)
        kernels._update(epoch, nth)
        zero = torch.zeros((), dtype=torch.int64, device=HERE)
        order = rows_in_order(own.keys.shuffle, zero, epoch, num_rows=numbers.num_rows)
        batch = kernels._records[order.chunk(numbers.num_minibatches)[nth]].double()
        obs, action = batch[:, :features], batch[:, features].long()
        old, advantage, value = batch[:, features + 1 : features + 4].unbind(1)
        logits, values, _ = net(obs)
        weighted = normalised(advantage) if numbers.normalise_advantage else advantage
        loss = clipped_policy_loss(categorical_log_probs(logits, action), old, weighted, 0.2)
        loss = loss + 0.5 * value_loss(values, value, advantage + value, numbers.value_clip)
        loss = loss - numbers.entropy_coef * categorical_entropy(logits).mean()
        wanted = torch.cat([x.flatten() for x in torch.autograd.grad(loss, [*net.parameters()])])
        found, at = kernels._gradient[: len(wanted)].double(), kernels._layout.value_at
        for part in (slice(0, at), slice(at, None)):
            assert (found - wanted)[part].norm() < 2e-3 * wanted[part].norm()


@pytest.mark.parametrize("kind", ["adam", "adamw"])
def test_a_step_is_that_of_the_learners_own_optimizer(kind: str) -> None:
    own = Setup(optimizer=kind)
    other, kernels = own.again(), own.kernels()
    kernels._schedule[:, 0] = 1e-3
    kernels._schedule[:, 1] = 0.2
    kernels._play()
    kernels._estimate()
    for update in range(3):
        kernels._update(update // 2, update % 2)
        gradient = kernels._gradient[: len(own.weights)]
        other.learner.flat.gradients[0].copy_(gradient)
        norm = other.learner.gradient_step.take(
            other.learner.flat.gradients, torch.tensor(1e-3, device=HERE), None
        )
        assert torch.isclose(kernels._metrics[update, 7], norm, rtol=1e-5)
        assert torch.allclose(own.weights, other.weights, atol=1e-6)
        moments = zip(own.learner.optimizer.moments, other.learner.optimizer.moments, strict=True)
        for mine, theirs in moments:
            assert torch.allclose(mine[0], theirs[0], rtol=1e-4, atol=1e-9)


def test_a_gradient_that_is_not_finite_moves_nothing() -> None:
    own = Setup()
    kernels = own.kernels()
    iterate(kernels)
    before, num_steps = own.weights.clone(), float(kernels._progress[0])
    kernels._turn.zero_()
    kernels._records[:, own.game.num_features + 2] = torch.nan
    kernels._update(0, 0)
    assert torch.equal(own.weights, before)
    assert float(kernels._progress[1]) == num_steps
    assert not torch.isfinite(kernels._metrics[0, 7])


def test_the_constants_of_a_shuffle_are_the_plain_ones_to_the_bit() -> None:
    own = Setup()
    kernels = own.kernels()
    own.live.iteration.fill_(2**33 + 5)
    kernels._play()
    for epoch in range(own.numbers.num_epochs):
        wanted = torch.cat(constants(own.keys.shuffle, own.live.iteration, epoch))
        found = kernels._table[8 * epoch : 8 * epoch + 8].long() & 0xFFFFFFFF
        assert torch.equal(found, wanted)
        inverse = kernels._table[kernels._num_constants + 8 * epoch :][:4].long() & 0xFFFFFFFF
        assert ((inverse * wanted[:4]) & 0xFFFFFFFF == 1).all()


def test_iterations_are_the_same_to_the_bit_made_at_once_or_one_by_one() -> None:
    at_once, one_by_one = Setup(), Setup()
    kernels = at_once.kernels()
    iterate(kernels, 3)
    others = one_by_one.kernels()
    for _ in range(3):
        iterate(others)
    assert torch.equal(at_once.weights, one_by_one.weights)
    assert torch.equal(at_once.live.state["numbers"], one_by_one.live.state["numbers"])
    assert torch.equal(kernels.totals, others.totals)


def test_each_update_has_the_rate_of_its_number() -> None:
    own = Setup()
    kernels = own.kernels()
    kernels._turns = 1
    seen: list[int] = []
    before = own.weights.clone()

    def rate(number: int) -> float:
        seen.append(number)
        return 0.0

    kernels.iterate(2, learning_rate=rate, clip=lambda _: 0.2)
    assert seen == list(range(2 * own.numbers.num_updates))
    assert torch.equal(own.weights, before)


@pytest.mark.skipif(not IS_GPU, reason="nothing waits on the CPU")
def test_iterating_never_waits_for_the_gpu() -> None:
    own = Setup()
    kernels = own.kernels()
    iterate(kernels)
    before = own.weights.clone()
    try:
        torch.cuda.set_sync_debug_mode("error")
        iterate(kernels, 5)
        with pytest.raises(RuntimeError, match="synchroniz"):
            float(own.weights[0])
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert not torch.equal(own.weights, before)


def test_a_function_that_a_kernel_cannot_know_is_refused() -> None:
    from ludus.games.kernels.inline import inlined

    def strange(x: Tensor) -> Tensor:
        return torch.erf(x)

    with pytest.raises(LudusError, match="uses 'torch', which a kernel does not know"):
        inlined(strange)


FUSED: dict[str, Any] = {
    "fused": True, "num_games": 8, "rollout_steps": 8, "minibatches": 2, "widths": [16, 16],
    "rounds_a_stage": 2, "max_rounds": 4, "engine": "eager", "log_every_rounds": 2,
    "settings.device": HERE.type,
}  # fmt: skip


@pytest.mark.covers("001-M10")
def test_a_trainer_makes_its_rounds_by_kernels_as_without_them() -> None:
    trainer = PPOTrainer(small_ppo(**FUSED))
    trainer.fit(runtime=InMemoryRuntime)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rounds, "why_no_kernels", lambda *given: "asked not to")
        other = PPOTrainer(small_ppo(**FUSED))
        other.fit(runtime=InMemoryRuntime)
    assert trainer._by_kernels is not None
    assert other._by_kernels is None
    for name in ("round", "game_steps", "opt_steps"):
        assert trainer.run.counters[name] == other.run.counters[name]
    assert torch.allclose(trainer.flat.vectors[0], other.flat.vectors[0], atol=5e-3)
    assert torch.allclose(trainer.live.state["numbers"], other.live.state["numbers"], atol=1e-3)
    assert torch.equal(trainer.live.lengths_B, other.live.lengths_B)


@pytest.mark.skipif(not IS_GPU, reason="nothing waits on the CPU")
def test_a_trainer_counts_how_often_it_waits_for_the_gpu() -> None:
    trainer = PPOTrainer(small_ppo(**FUSED | {"log_every_rounds": 0}))
    trainer.fit(max_steps=4, runtime=InMemoryRuntime)
    syncs, weights = HostSyncs(HERE), trainer.flat.vectors[0]
    # The first stage has captured the graph; to be given no number is to wait for none.
    syncs.counting(lambda run: trainer._by_kernels.make(1, 3, lambda number: 1e-3))(trainer.run)
    assert syncs.num_syncs == 0
    syncs.counting(lambda run: {"sums": [float(weights.sum()), float(weights.sum())]})(trainer.run)
    assert syncs.num_syncs == 2


def test_making_ready_changes_nothing_and_leaves_nothing_to_be_captured() -> None:
    own = Setup()
    other, kernels = own.again(), own.kernels()
    kernels.make_ready()
    for mine, theirs in zip(kernels._changed(), other.kernels()._changed(), strict=True):
        assert torch.equal(mine, theirs)
    assert (kernels._graph is not None) == IS_GPU


def test_how_many_rounds_a_stage_has_changes_no_bit() -> None:
    ends = []
    for count in (1, 2):
        trainer = PPOTrainer(small_ppo(**FUSED | {"rounds_a_stage": count}))
        trainer.fit(runtime=InMemoryRuntime)
        ends.append(trainer)
    one, two = ends
    assert torch.equal(one.flat.vectors[0], two.flat.vectors[0])
    assert torch.equal(one.live.state["numbers"], two.live.state["numbers"])


class Asked(PPOTrainer):
    """Is asked to pause after the first stage."""

    def after_iterate(self) -> None:
        self.run.interrupted = True


def test_a_run_by_kernels_ends_as_if_never_interrupted(tmp_path: Path) -> None:
    config = small_ppo(**FUSED, name="run")
    whole = PPOTrainer(config)
    whole.fit(root=str(tmp_path / "whole"))
    Asked(config).fit(root=str(tmp_path / "cut"))
    resumed = PPOTrainer(config)
    resumed.fit(root=str(tmp_path / "cut"), resume=True)
    assert resumed._by_kernels is not None
    assert torch.equal(whole.flat.vectors[0], resumed.flat.vectors[0])
    assert torch.equal(whole.live.state["numbers"], resumed.live.state["numbers"])
    files = [tmp_path / one / "run" / "metrics.jsonl" for one in ("whole", "cut")]
    assert files[0].read_bytes() == files[1].read_bytes()


def squared(x: Tensor, v: Tensor, angle: Tensor, spin: Tensor) -> Numbers:
    return x**2, v, angle, spin


@pytest.mark.skipif(not IS_GPU, reason="the interpreter runs any Python")
def test_functions_that_triton_cannot_compile_are_called_plainly_and_that_is_told() -> None:
    patched = type("Squared", (CartPole,), {"features": staticmethod(squared)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fused_ppo, "make_game", lambda section: patched(max_steps=9))
        trainer = PPOTrainer(small_ppo(**FUSED))
        trainer.fit(runtime=InMemoryRuntime)
    assert trainer._by_kernels is None
    assert "Triton cannot compile the functions of Squared" in trainer.ppo.engine_notes[-1]
    assert trainer.run.counters["round"] == 4


@pytest.mark.parametrize("name", ["train_step", "collect_rollout", "outputs"])
def test_a_script_that_learns_in_its_own_way_is_not_passed_over(name: str) -> None:
    calls: list[Any] = []
    whole = getattr(PPOTrainer, name)

    def own(self: PPOTrainer, *given: Any) -> Any:
        calls.append(given)
        return whole(self, *given)

    trainer = type("Own", (PPOTrainer,), {name: own})(small_ppo(**FUSED))
    trainer.fit(runtime=InMemoryRuntime)
    assert trainer._by_kernels is None
    assert len(calls) > 1
