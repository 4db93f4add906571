"""What a user's module does with ludus, for a type checker: nothing here is run.

Each base that the documents derive from has a class below. `tests/test_typed_door.py` checks this file
with mypy, strictly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, assert_type

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import ludus
from ludus import arena, core, games, judge, nn as networks, rl, session, text
from ludus.active import ScoreConfig, ScoreStrategy
from ludus.core import Every, Repeat, Run, Stage
from ludus.seeds import generator


class Section(ludus.StrictConfig):
    width: int
    """How wide it is."""


class WalkConfig(ludus.TrainerConfig):
    num_steps: int
    """How many steps to walk."""
    section: Section
    """A section."""


@ludus.register_trainer("typed_walk")
class Walk(session.Trainer):
    Config = WalkConfig
    config: WalkConfig

    def prepare(self, *, max_steps: int | None) -> None:
        self.place, self.generator = 0.0, generator(self.config.seed, "walk")
        self.write_log = session.WriteLog(self.logger, [Every(10, "opt_steps")])
        self.judge = judge.Judge(judge.Score("walk", "walk/place", patience=3))

    def plan(self) -> Repeat:
        assert_type(self.config.section.width, int)
        step = Stage(name="move", work=self.move)
        return Repeat(name="train", times=self.config.num_steps, body=(step,))

    def parts(self) -> Mapping[str, core.Stateful]:
        return {"write_log": self.write_log, "judge": self.judge}

    def observers(self) -> Sequence[core.Observer]:
        return [self.write_log]

    def move(self, run: Run) -> dict[str, Any]:
        run.counters["opt_steps"] += 1
        return {"walk/place": self.place}


class CountEpochs:
    """A callback."""

    def __init__(self) -> None:
        self.count = 0

    def after_epoch(self, run: Run) -> None:
        self.count += run.counters["epoch"]

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.count = state["count"]


@ludus.register("model", "typed_perceptron")
class Perceptron(nn.Module):
    class Config(ludus.StrictConfig):
        kind: Literal["typed_perceptron"]
        """A single layer."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def special(self) -> int:
        return 3


class Weighted(ludus.Model):
    def training_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:
        return {**super().training_step(batch, batch_idx), "weight": torch.ones(())}


class Digits(ludus.Trainer):
    def after_epoch(self) -> None:
        assert_type(self.run, Run)


class Supervised(ludus.BaseTrainer):
    pass


class Active(ludus.ActiveTrainer):
    pass


class Accuracy(ludus.Evaluator):
    def before_eval(self) -> None:
        assert_type(self.model, Any)


class Halving:
    class Config(networks.ScheduleConfig):
        kind: Literal["typed_halving"]
        """Halve the value."""

        def highest(self, initial: float) -> float:
            return initial


class Adamax:
    class Config(networks.OptimizerConfig):
        kind: Literal["typed_adamax"]
        """Adam by the largest gradient."""


class QConfig(rl.OffPolicyConfig, rl.RLConfig):
    epsilon: float
    """How often an action is random."""


class QLearning(rl.Agent):
    config: QConfig

    def learned(self) -> Mapping[str, networks.Learner]:
        return {}

    def act_greedy(self, obs_ND: NDArray[Any], masks: NDArray[Any] | None) -> NDArray[Any]:
        return np.zeros(len(obs_ND)) * self.config.epsilon


class QTrainer(ludus.StepRLTrainer):
    Config = QConfig
    Agent = QLearning
    config: QConfig


class Loud(ludus.RLTrainer):
    def after_epoch(self) -> None:
        assert_type(self.num_episodes, int)
        assert_type(self.agent, rl.Agent)


class OwnAgent:
    """Satisfies the protocol of an agent of a script's own."""

    def sample(self, obs_ND: NDArray[Any]) -> NDArray[Any]:
        return np.zeros(len(obs_ND))

    def opt(self, buffer: object) -> dict[str, float] | None:
        return None


class OwnRecorder:
    def write(self, record: ludus.Record) -> None:
        assert_type(record.counters, Mapping[str, int])


class ThirdChoice(ScoreStrategy):
    class Config(ScoreConfig):
        kind: Literal["typed_third_choice"]
        """The probability of the third class."""


class Nim(games.FusedGame):
    roles = ("first", "second")

    def actions(self, role: str) -> games.Moves:
        return games.Moves(3)


class TwoRoles(games.TwoRoleTrainer):
    pass


class CautiousParameters(ludus.SubParameters):
    floor: float
    """Actions rarer than this teach nothing."""


class CautiousHyperParameters(ludus.RlHyperParameters):
    cautious: CautiousParameters
    """The parameters of the loss, besides `rl`."""


class CautiousLoss(ludus.Objective):
    pass


class CautiousTrainer(ludus.TensorDictRlTrainer):
    Config = CautiousHyperParameters
    config: CautiousHyperParameters

    def floor(self) -> float:
        return self.config.cautious.floor


class MatchingParameters(ludus.HyperParameters):
    num_rounds: int
    """How many rounds there are."""


class MatchingTrainer(ludus.TensorDictTrainer):
    Config = MatchingParameters


class OtherTrainer(ludus.ArenaTrainer):
    Config = MatchingParameters


class Counting(ludus.Body):
    needs = ("bits",)


class FirstWord(ludus.Analyser):
    pass


class Majority(ludus.Scenario):
    pass


class SecondOpinion(ludus.ProtocolHandler):
    Config: ClassVar[type[arena.ProtocolParameters]] = arena.ProtocolParameters

    def turn(self, round_index: int, variant: int) -> arena.Turn:
        return {"verifier": ()}


class BestOfParameters(ludus.SubParameters):
    num_best: int
    """The number of episodes to imitate."""


class BestOfHyperParameters(ludus.TextHyperParameters):
    best_of: BestOfParameters
    """What is imitated."""


class BestOfTrainer(ludus.PureTextRlTrainer):
    Config = BestOfHyperParameters
    config: BestOfHyperParameters

    def _stage_create_fine_tune_jobs(self, rollouts: ludus.NestedArrayDict) -> None:
        for group in self.groups.values():
            assert_type(group, ludus.PureTextSharedModelGroup)
            places = range(self.config.best_of.num_best)
            examples = text.conversations(rollouts, self.handler, group.agents[0], places)
            group.create_supervised_fine_tune_job(examples)


class Questions(ludus.TextScenario):
    def make_datasets(self, seed: int) -> ludus.TextDatasets:
        questions = ludus.TextDataset({"question": ["1 + 1 = 2?"]}, [1])
        return ludus.TextDatasets(train=questions, test=questions)


class Lengths(ludus.TextAnalyser):
    def analyse(
        self, rollouts: ludus.NestedArrayDict, handler: ludus.ProtocolHandler
    ) -> Mapping[str, float]:
        return {"episodes": float(len(rollouts))}


class Silent(ludus.Provider):
    async def models(self) -> Sequence[text.ModelInfo]:
        return [text.ModelInfo("silent")]

    async def chat(self, request: ludus.ChatRequest) -> ludus.ChatAnswer:
        choice = text.ChatChoice("", finish_reason="stop", num_tokens=0)
        return ludus.ChatAnswer((choice,) * request.n, 0, 0)

    async def create_job(self, spec: text.JobSpec) -> text.Job:
        raise text.ProviderError("no jobs")

    async def find_jobs(self, key: str) -> list[text.Job]:
        return []

    async def job(self, job_id: str) -> text.Job:
        raise text.ProviderError("no jobs")

    async def cancel_job(self, job_id: str) -> text.Job:
        raise text.ProviderError("no jobs")


def main() -> None:
    assert_type(Perceptron(Perceptron.Config(kind="typed_perceptron")).special(), int)
    agent: ludus.Agent = OwnAgent()
    recorder: ludus.Recorder = OwnRecorder()
    trainer = Digits(ludus.example("supervised"))
    trainer.add(CountEpochs())
    trainer.set_evaluator(Accuracy(score=lambda model: 1.0))
    result = trainer.fit(name="typed", resume=True)
    assert_type(result, ludus.Result)
    assert_type(ludus.example("ppo").evaluation.episodes, int)
    assert_type(ludus.read_config("walk.yaml"), ludus.TrainerConfig)
    assert_type(ludus.StepRLTrainer.build("dqn.yaml").train(agent, recorder), ludus.Result)
    assert_type(ludus.build_trainer("walk.yaml"), core.Trainer)
    assert_type(ludus.open_storage("runs/typed"), ludus.Storage)
    policy = ludus.load("typed", "last", expected=ludus.Policy)
    assert_type(policy, ludus.Policy)
    assert_type(policy.predict([0.0])[0], NDArray[Any])
    assert_type(ludus.load("typed", network=lambda: nn.Linear(2, 2), expected=nn.Module), nn.Module)
