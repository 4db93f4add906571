"""The base classes, as someone uses them who writes a trainer: a loss, a loop, or everything.

Shapes: N rows.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor, nn
from torchrl.objectives import ClipPPOLoss, ValueEstimators

import ludus
from ludus import ArenaTrainer, IterationContext, TensorDictRlTrainer, TensorDictTrainer
from ludus.arena.objectives.objective import KEYS, has_turn, masked_mean
from ludus.arena.trainers.vanilla_ppo import VanillaPpoParameters, VanillaPpoTrainer
from ludus.core.errors import ConfigError, LudusError
from ludus.testing.differences import ending_of
from ludus.testing.trainers import check_kill_anywhere
from tests.arena.small import small_arena


def run(cls: type[ArenaTrainer], root: Path, **changed: Any) -> Any:
    """Train with a small config, without registering anything."""
    trainer: Any = cls(small_arena(**changed))
    trainer.result = trainer.fit(root=str(root), name=cls.__name__)
    return trainer


def lines(trainer: Any) -> str:
    return (Path(trainer.result.run_dir) / "metrics.jsonl").read_text()


class OwnLoop(VanillaPpoTrainer):
    @ludus.attach_progress_bar(lambda self: self.hyper_params.rl.num_iterations)
    def _run_train_loop(self, iteration_context: IterationContext) -> None:
        iteration_context.set_description("Mine")
        super()._run_train_loop(iteration_context)


class OwnTrain(VanillaPpoTrainer):
    def train(self) -> None:
        super().train()


@pytest.mark.covers("002-M4")
@pytest.mark.parametrize("cls", [OwnLoop, OwnTrain])
def test_a_loop_of_ones_own_that_calls_the_default_one_is_the_plan_to_the_byte(
    cls: Any, tmp_path: Path
) -> None:
    for changed in ({}, {"evaluation.target": 0.0}):
        plain, own = (
            run(one, tmp_path / f"{changed}", **changed) for one in (VanillaPpoTrainer, cls)
        )
        assert lines(own) == lines(plain)
        assert own.result.counters == plain.result.counters
        # Best models are numbered by boundaries, of which a loop in one stage has one.
        one, other = (
            {name: kept for name, kept in ending_of(x.result.run_dir).models if "best-" not in name}
            for x in (own, plain)
        )
        assert one == other
        assert "best" in one
        assert {"8", "final"} <= {*one} or changed


@pytest.mark.covers("002-D6")
@pytest.mark.parametrize("cls", [OwnLoop, OwnTrain])
def test_a_loop_of_ones_own_that_is_killed_begins_again_and_ends_alike(
    cls: Any, tmp_path: Path
) -> None:
    short = {"max_iterations": 2, "evaluate_every_iterations": 1}
    check_kill_anywhere(lambda: cls(small_arena(**short)), tmp_path, max_kills=3)


class AsItIs(TensorDictRlTrainer):
    Config = VanillaPpoParameters
    functional: ClassVar[bool] = True

    def _get_loss_module_and_gae(self) -> tuple[nn.Module, nn.Module | None]:
        loss_module = ClipPPOLoss(
            ludus.make_actor(self.agents),
            ludus.make_critic(self.agents),
            functional=self.functional,
        )
        loss_module.set_keys(**KEYS)
        loss_module.make_value_estimator(ValueEstimators.GAE, gamma=0.9, lmbda=0.95)
        return loss_module, loss_module.value_estimator


class AsItIsBound(AsItIs):
    functional = False


@pytest.mark.covers("002-M4")
@pytest.mark.filterwarnings("ignore:You requested advantage normalization")
def test_a_loss_of_torchrl_trains_the_agents_as_it_is(tmp_path: Path) -> None:
    one, other = run(AsItIs, tmp_path), run(AsItIsBound, tmp_path)
    fresh = AsItIs(small_arena())
    fresh.prepare(max_steps=None)
    before = fresh.weights()
    assert sum(not torch.equal(before[name], one.weights()[name]) for name in before) > 20
    for name, weight in one.weights().items():
        assert torch.equal(weight, other.weights()[name])


class Counting(ludus.Objective):
    """A loss with a parameter and a buffer of its own."""

    def __init__(self, agents: nn.Module) -> None:
        super().__init__()
        self.actor = ludus.make_actor(agents)  # type: ignore[arg-type]
        self.scale = nn.Parameter(torch.ones(()))
        self.register_buffer("num_calls", torch.zeros(()))

    def forward(self, tensordict: TensorDictBase) -> TensorDict:
        log_prob_NA = self.actor.get_dist(tensordict).log_prob(tensordict["agents", "action"])
        self.num_calls += 1  # type: ignore[operator]
        loss = -masked_mean(log_prob_NA, has_turn(tensordict)) * self.scale / self.num_calls
        return TensorDict({"loss_policy": loss, "num_calls": self.num_calls.clone()})


class OwnLoss(TensorDictRlTrainer):
    Config = VanillaPpoParameters

    def _get_loss_module_and_gae(self) -> tuple[nn.Module, nn.Module | None]:
        return Counting(self.agents), None


@pytest.mark.covers("002-M4")
def test_a_new_loss_is_enough_and_learns_parameters_of_its_own(tmp_path: Path) -> None:
    trainer = run(OwnLoss, tmp_path)
    assert float(trainer.loss_module.num_calls) == 12  # not one more, for trying it
    assert float(trainer.loss_module.scale.detach()) != 1.0
    assert '"train/loss_policy"' in lines(trainer)
    assert "advantage" not in lines(trainer)


class Contexts(VanillaPpoTrainer):
    def _build_train_context(self, stack: ExitStack) -> None:
        super()._build_train_context(stack)
        self.entered = getattr(self, "entered", 0) + 1

    def _build_test_context(self, stack: ExitStack) -> None:
        super()._build_test_context(stack)
        self.grad_in_test = torch.is_grad_enabled()
        stack.callback(setattr, self, "is_closed", True)


@pytest.mark.covers("002-M7")
def test_contexts_of_ones_own_are_entered_for_every_stage_that_trains_and_for_the_test(
    tmp_path: Path,
) -> None:
    trainer = run(Contexts, tmp_path)
    assert trainer.entered == 3 * (2 + 4)
    assert trainer.grad_in_test is False
    assert trainer.is_closed
    assert lines(trainer) == lines(run(VanillaPpoTrainer, tmp_path))


class Supervised(TensorDictTrainer):
    """A loop in plain Python."""

    Config = VanillaPpoParameters

    @ludus.attach_progress_bar(lambda self: self.hyper_params.rl.num_iterations)
    def _run_train_loop(self, iteration_context: IterationContext) -> None:
        optimizer = torch.optim.SGD(self.agents.parameters(), lr=0.1)
        environment = self.scenario_instance.train_environment
        for iteration in range(iteration_context.num_iterations):
            assert self.agents.training
            moment = environment.begin(iteration)
            rollouts = ludus.roll_out(
                self.agents,
                environment,
                moment,
                lambda d: d.sample(),
                num_steps=environment.num_steps,
            )
            values = self.agents.value(environment.filled(rollouts).reshape(-1))
            loss: Tensor = (values**2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            self.run.record({"train/loss": loss.detach()})
            self.run.log.write(self.run)
            iteration_context.step()

    @ludus.attach_progress_bar(lambda self: self.hyper_params.rl.num_test_iterations)
    def _run_test_loop(self, iteration_context: IterationContext) -> None:
        assert not self.agents.training
        assert not torch.is_grad_enabled()
        self.run.record({"test/drawn": torch.rand(())})
        self.run.log.write(self.run)


@pytest.mark.covers("002-M5", "002-M6", "002-M10", "002-M11")
def test_a_loop_in_plain_python_trains_tests_and_saves_its_models(tmp_path: Path) -> None:
    trainer = run(Supervised, tmp_path)
    assert trainer.num_total_iterations == 3 + 2
    assert lines(trainer).count("train/loss") == 3
    assert lines(trainer).count("test/drawn") == 1
    assert [name for name, _ in ending_of(trainer.result.run_dir).models] == ["final"]
    again = run(Supervised, tmp_path / "again")
    assert lines(again) == lines(trainer)
    instance = trainer.scenario_instance
    assert isinstance(instance, ludus.ScenarioInstance)
    assert isinstance(trainer.hyper_params, ludus.HyperParameters)
    assert isinstance(trainer.settings, ludus.ExperimentSettings)


@pytest.mark.covers("002-M1", "002-M10")
def test_a_scenario_instance_of_ones_own_and_other_settings_may_be_given(tmp_path: Path) -> None:
    config = small_arena()
    instance = ludus.build_scenario_instance(
        config, device=torch.device("cpu"), trainer_type="rl", num_envs=8, num_judged=8,
        use_shared_body=True,
    )  # fmt: skip
    settings = config.settings.model_copy(update={"workers": 0, "deterministic": False})
    trainer = VanillaPpoTrainer(config, instance, settings)
    result = trainer.fit(root=str(tmp_path), name="given")
    assert trainer.agents is instance.agents
    assert trainer.settings.deterministic is False
    plain = run(VanillaPpoTrainer, tmp_path)
    assert (Path(result.run_dir) / "metrics.jsonl").read_text() == lines(plain)


class Words(ArenaTrainer):
    Config = VanillaPpoParameters

    def train(self) -> None:
        self.run.record({"train/words": 3.0})
        self.run.log.write(self.run)


@pytest.mark.covers("002-M2")
def test_a_trainer_of_other_data_writes_train_and_has_a_run_directory(tmp_path: Path) -> None:
    trainer = run(Words, tmp_path)
    assert lines(trainer) == '{"train/words": 3.0}\n'
    assert trainer.result.status == "finished"


class NoLoss(TensorDictRlTrainer):
    Config = VanillaPpoParameters


class NoLoop(TensorDictTrainer):
    Config = VanillaPpoParameters


class NoTrain(ArenaTrainer):
    Config = VanillaPpoParameters


@pytest.mark.parametrize(
    ("cls", "told"),
    [
        (NoLoss, "NoLoss defines no _get_loss_module_and_gae; define it"),
        (NoLoop, "NoLoop has no _run_train_loop; define it"),
        (NoTrain, "NoTrain has no train(); define it"),
    ],
)
def test_what_a_trainer_lacks_is_told_in_a_sentence(cls: Any, told: str, tmp_path: Path) -> None:
    with pytest.raises(LudusError) as caught:
        run(cls, tmp_path)
    assert str(caught.value).startswith(told)


def test_train_alone_says_that_fit_is_to_be_called() -> None:
    with pytest.raises(LudusError, match=r"call trainer\.fit\(\)"):
        VanillaPpoTrainer(small_arena()).train()


class Early(AsItIs):
    def _get_loss_module_and_gae(self) -> tuple[nn.Module, nn.Module | None]:
        loss_module = ClipPPOLoss(ludus.make_actor(self.agents), ludus.make_critic(self.agents))
        return loss_module, loss_module.value_estimator


class NoEstimator(AsItIs):
    def _get_loss_module_and_gae(self) -> tuple[nn.Module, nn.Module | None]:
        return super()._get_loss_module_and_gae()[0], None


class OtherKeys(AsItIs):
    def _get_loss_module_and_gae(self) -> tuple[nn.Module, nn.Module | None]:
        loss_module, gae = super()._get_loss_module_and_gae()
        loss_module.set_keys(action="move")  # type: ignore[operator]
        return loss_module, gae


class NoTerm(OwnLoss):
    def _get_loss_module_and_gae(self) -> Any:
        class Empty(ludus.Objective):
            def forward(self, tensordict: TensorDictBase) -> TensorDict:
                return TensorDict({"policy": torch.zeros(())})

        return Empty(), None


class NoGradient(OwnLoss):
    def _get_loss_module_and_gae(self) -> Any:
        class Constant(ludus.Objective):
            def forward(self, tensordict: TensorDictBase) -> TensorDict:
                return TensorDict({"loss_a": torch.zeros(())})

        return Constant(), None


class NoKeys(AsItIs):
    def _get_loss_module_and_gae(self) -> tuple[nn.Module, nn.Module | None]:
        loss_module = ClipPPOLoss(ludus.make_actor(self.agents), ludus.make_critic(self.agents))
        loss_module.make_value_estimator(ValueEstimators.GAE, gamma=0.9, lmbda=0.95)
        return loss_module, loss_module.value_estimator


class NoPair(OwnLoss):
    def _get_loss_module_and_gae(self) -> Any:
        return Counting(self.agents)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("cls", "told"),
    [
        (Early, "reads loss_module.value_estimator before it is made; call"),
        (NoEstimator, "ClipPPOLoss reads advantages, but has no value estimator; call"),
        (
            OtherKeys,
            "ClipPPOLoss looks for 'move', which is not in a minibatch; call loss_module.set_keys",
        ),
        (NoTerm, "Empty returned no scalar term whose name begins with loss_"),
        (
            NoGradient,
            "Constant returned loss_a, no term of which depends on a weight of the agents",
        ),
        (NoKeys, "makes an estimator that looks for what no rollout has"),
        (NoPair, "returned Counting; return a loss module and its advantage estimator"),
    ],
)
def test_a_loss_module_that_cannot_be_used_is_refused_before_anything_is_written(
    cls: Any, told: str, tmp_path: Path
) -> None:
    with pytest.raises((LudusError, ConfigError), match=told):
        run(cls, tmp_path)
    assert not (tmp_path / cls.__name__ / "run.json").exists()


def test_parameters_like_others_take_the_kind_of_a_section_before_its_keys() -> None:
    other = ludus.example("solo_agent")
    changed = {"optimizer.learning_rate": 0.5, "optimizer.kind": "sgd"}
    config = type(other).like(other, **changed)
    assert (config.optimizer.kind, config.optimizer.learning_rate) == ("sgd", 0.5)
