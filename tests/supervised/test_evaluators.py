"""Evaluators that a script makes and sets, for trainers of any kind, here or in a process beside."""

from __future__ import annotations

import json
import math
import signal
from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.core.errors import ConfigError, LudusError
from ludus.judge.async_evaluator import AsyncEvaluator
from ludus.process.child import ChildDied
from ludus.store.local import LocalStorage
from ludus.store.models import read_model
from tests.faults.warm import WarmProcess
from tests.rl.small import small
from tests.supervised.conftest import Tiny, history, lines

PATIENT = {"evaluation.keep": 0, "evaluation.patience": None}

pytestmark = pytest.mark.usefixtures("warm_children")


@pytest.mark.covers("000-M1")
def test_an_evaluator_made_from_a_config_judges_as_its_runs_do(tmp_path: Path, tiny: Tiny) -> None:
    for name, config in (("agent", small("dqn")), ("model", tiny())):
        own: Any = ludus.build_trainer(config)
        plain = own.fit(root=str(tmp_path), name=f"{name}-plain")
        trainer: Any = ludus.build_trainer(config)
        trainer.set_evaluator(ludus.Evaluator(config))
        given = trainer.fit(root=str(tmp_path), name=f"{name}-given")
        assert lines(given.run_dir) == lines(plain.run_dir)


def test_an_evaluator_may_play_other_episodes_than_the_run(tmp_path: Path) -> None:
    trainer: Any = ludus.build_trainer(small("dqn"))
    other = small(
        "dqn", **{"evaluation.env": {**small("dqn").env.model_dump(), "max_episode_steps": 4}}
    )
    trainer.set_evaluator(ludus.Evaluator(other))
    result = trainer.fit(root=str(tmp_path))
    assert set(history(result.run_dir, "eval/length_mean")) == {4.0}


@pytest.mark.covers("000-M1")
def test_a_function_can_be_the_judge_of_agents_and_of_models(tmp_path: Path, tiny: Tiny) -> None:
    asked: list[Any] = []

    def score(agent: Any) -> float:
        asked.append(agent)
        return 7.0 + len(asked)

    agent: Any = ludus.build_trainer(small("dqn"))
    agent.set_evaluator(ludus.Evaluator(score=score, metric="eval/mine"))
    result = agent.fit(root=str(tmp_path), name="agent")
    assert history(result.run_dir, "eval/mine") == [8.0, 9.0, 10.0]
    assert result.best["score"] == 10.0
    assert set(asked) == {agent.agent}
    model: Any = ludus.build_trainer(tiny(**PATIENT))
    model.set_evaluator(ludus.Evaluator(score=lambda model: (0.5, {"validation/mine": 0.25})))
    result = model.fit(root=str(tmp_path), name="model")
    assert set(history(result.run_dir, "validation/mine")) == {0.25}


def test_an_object_with_evaluate_may_return_a_number_alone(tmp_path: Path, tiny: Tiny) -> None:
    class Mine:
        def evaluate(self, agent: Any) -> float:
            return 3.0

    for config, metric in (
        (small("dqn"), "eval/return_mean"),
        (tiny(**PATIENT), "validation/score"),
    ):
        trainer: Any = ludus.build_trainer(config)
        trainer.set_evaluator(Mine())
        result = trainer.fit(root=str(tmp_path), name=config.kind)
        assert set(history(result.run_dir, metric)) == {3.0}


@pytest.mark.covers("000-S10")
def test_run_eval_comes_between_its_two_hooks() -> None:
    events: list[Any] = []

    class Mine(ludus.Evaluator):
        def before_eval(self) -> None:
            events.append("before")

        def after_eval(self, outcome: Any) -> None:
            events.append(outcome)

    mine = Mine(score=lambda model: model + 1)
    with pytest.raises(LudusError, match="call set_model"):
        mine.run_eval()
    mine.set_model(4)
    assert mine.run_eval() == (5.0, {"eval/score": 5})
    assert events == ["before", (5.0, {"eval/score": 5})]


@pytest.mark.covers("000-S10")
def test_an_evaluator_judges_a_kept_model_by_itself_and_logs_it(tmp_path: Path, tiny: Tiny) -> None:
    best = {"evaluation.metric": "validation/epoch_loss", "evaluation.keep": 1}
    for config in (small("dqn"), tiny(**best)):
        trainer: Any = ludus.build_trainer(config)
        result = trainer.fit(root=str(tmp_path), name=config.kind)
        logger, evaluator = ludus.Logger({"backends": []}), ludus.Evaluator(config)
        with pytest.raises(LudusError, match=r"call set_model\(model\) first"):
            evaluator.load_model(Path(result.run_dir) / "models" / "best")
        evaluator.set_model(getattr(trainer, "agent", trainer.model))
        evaluator.set_logger(logger)
        evaluator.load_model(Path(result.run_dir) / "models" / "best")
        score, record = evaluator.run_eval()
        assert score == pytest.approx(result.best["score"])
        assert logger.state_dict()["scalars"].keys() == record.keys()


def test_an_evaluator_that_cannot_be_made_says_what_to_give() -> None:
    with pytest.raises(ConfigError, match="takes a config, or score="):
        ludus.Evaluator()
    with pytest.raises(ConfigError, match="takes a config, or score="):
        ludus.Evaluator(small("dqn"), score=len)
    for made in (ludus.Evaluator, ludus.AsyncEvaluator):
        with pytest.raises(ConfigError, match="from a trainer's config, not from a dict"):
            made({"kind": "dqn"})
    with pytest.raises(LudusError, match="an evaluator returned str good"):
        ludus.Evaluator(score=lambda agent: "good").evaluate(None)


@pytest.mark.covers("000-M1", "000-S11")
def test_a_model_is_validated_beside_training_and_logged_where_it_was_launched(
    tmp_path: Path, tiny: Tiny
) -> None:
    config = tiny(max_epochs=3, **PATIENT)
    here: Any = ludus.build_trainer(config)
    plain = here.fit(root=str(tmp_path), name="here")
    async_evaluator: Any = ludus.build_trainer(config)
    async_evaluator.set_evaluator(ludus.AsyncEvaluator(config))
    result = async_evaluator.fit(root=str(tmp_path), name="beside")
    assert result.exact

    def validated(run_dir: Any) -> tuple[list[int], list[float]]:
        rows = [row for row in lines(run_dir) if "validation/epoch_loss" in row]
        return [row["opt_steps"] for row in rows], [row["validation/epoch_loss"] for row in rows]

    (places, losses), (wanted_places, wanted) = validated(result.run_dir), validated(plain.run_dir)
    assert places == wanted_places
    assert len(losses) == 3
    assert losses == pytest.approx(wanted)
    # Training itself knows nothing of it.
    mine = async_evaluator.model.state_dict()
    assert all(tensor.equal(mine[name]) for name, tensor in here.model.state_dict().items())


def test_a_validation_beside_training_decides_by_the_weights_and_counters_of_its_launch(
    tmp_path: Path, tiny: Tiny
) -> None:
    """It is heard at the next validation, so the run stops one epoch later and keeps the same best."""
    sections = {
        "evaluation.metric": "validation/epoch_loss", "evaluation.keep": 1,
        "evaluation.patience": 2,
        "evaluation.min_delta": 9.0,
    }  # fmt: skip
    config = tiny(max_epochs=9, **sections)
    plain = ludus.build_trainer(config).fit(root=str(tmp_path), name="here")
    trainer: Any = ludus.build_trainer(config)
    trainer.set_evaluator(ludus.AsyncEvaluator(config))
    result = trainer.fit(root=str(tmp_path), name="beside")
    assert plain.reason == result.reason
    assert "validation/epoch_loss has not improved for 2 evaluations" in str(result.reason)
    assert (plain.counters["epoch"], result.counters["epoch"]) == (3, 4)
    losses = history(result.run_dir, "validation/epoch_loss")
    assert losses == pytest.approx(history(plain.run_dir, "validation/epoch_loss"))
    assert plain.best is not None
    assert result.best is not None
    assert result.best["score"] == pytest.approx(plain.best["score"])
    assert result.best["counters"]["opt_steps"] == plain.best["counters"]["opt_steps"]
    mine, wanted = (
        read_model(LocalStorage(str(one.run_dir)), "models/best")[0] for one in (result, plain)
    )
    assert all(tensor.equal(wanted[name]) for name, tensor in mine.items())


@pytest.mark.parametrize("metric", ["validation/epoch_loss", "validation/epoch_accuracy"])
def test_a_validation_that_is_lost_uses_patience(
    metric: str, tmp_path: Path, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever metric is judged: the first one counts, all later ones are lost."""
    collected, real = [], AsyncEvaluator._result

    def crash_later(self: AsyncEvaluator, launch: Any) -> Any:
        collected.append(launch)
        if len(collected) > 1:
            raise ChildDied("the evaluation worker crashed", -signal.SIGSEGV)
        return real(self, launch)

    monkeypatch.setattr(AsyncEvaluator, "_result", crash_later)
    config = tiny(
        max_epochs=9,
        evaluation__metric=metric,
        evaluation__keep=1,
        evaluation__patience=2,
    )
    trainer: Any = ludus.build_trainer(config)
    trainer.set_evaluator(ludus.AsyncEvaluator(config, max_restarts=0))
    result = trainer.fit(root=str(tmp_path), name="beside")
    assert f"{metric} has not improved for 2 evaluations" in str(result.reason)
    # Validated after epochs 1, 2 and 3; the third is heard when the fourth has ended.
    assert (result.counters["epoch"], len(collected)) == (4, 3)
    assert not result.exact
    assert result.best is not None
    assert result.best["counters"]["opt_steps"] == collected[0].counters["opt_steps"]
    assert [math.isnan(float(x)) for x in history(result.run_dir, metric)] == [False, True, True]


def test_an_agent_is_judged_beside_training_by_an_evaluator_that_was_set(tmp_path: Path) -> None:
    config = small("dqn")
    plain = ludus.build_trainer(config).fit(root=str(tmp_path), name="here")
    async_evaluator: Any = ludus.build_trainer(config)
    async_evaluator.set_evaluator(ludus.AsyncEvaluator(config))
    assert not async_evaluator.config.evaluation.asynchronous
    result = async_evaluator.fit(root=str(tmp_path), name="beside")
    assert async_evaluator.async_eval
    assert history(result.run_dir, "eval/return_mean") == history(plain.run_dir, "eval/return_mean")


def test_what_cannot_be_validated_beside_training_is_told_before_it(
    tmp_path: Path, tiny: Tiny
) -> None:
    def refusal(config: Any, **given: Any) -> str:
        trainer: Any = ludus.Trainer(config, **given)
        trainer.set_evaluator(ludus.AsyncEvaluator(tiny(**PATIENT)))
        with pytest.raises(ConfigError) as caught:
            trainer.fit(root=str(tmp_path))
        return str(caught.value)

    model = ludus.Model(tiny().model, loss="cross_entropy")
    assert "register it as a model kind" in refusal(tiny(**PATIENT), model=model)
    with pytest.raises(ConfigError, match="'model' is null"):
        ludus.AsyncEvaluator(tiny(model=None))
    with pytest.raises(ConfigError, match="'data' is null"):
        ludus.Evaluator(tiny(data=None))
    assert not list(tmp_path.iterdir())


SCRIPT = """
import json, sys, typing, numpy as np, gymnasium, ludus
from ludus.config.registry import register
from ludus.config.sections import StrictConfig

{body}

config = ludus.example("ppo", **{{"evaluation.asynchronous": True,
    "evaluation.timeout_seconds": 60.0, "max_env_steps": 512,
    "rollout_steps": 32, "num_envs": 2, "minibatch_size": 32, "num_epochs": 1,
    "evaluate_every_epochs": 1,
    "evaluation.target": None, "settings.display": "none", "network.widths": [8],
    "evaluation.episodes": 2, "env": {env}}})
try:
    print(json.dumps(ludus.build_trainer(config).fit(root="runs", name="mine").counters))
except ludus.LudusError as error:
    print("refused:", error)
"""
ENV = '''
class Mine(gymnasium.Env):
    class Config(StrictConfig):
        kind: typing.Literal["mine"]
        """Mine."""
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    def __init__(self, config=None):
        pass
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), {}
    def step(self, action):
        self.steps += 1
        return np.zeros(2, np.float32), 1.0, self.steps > 5, False, {}
'''
KIND = '{"kind": "mine"}'
GYM = '{"kind": "gymnasium", "id": "Mine-v0", "kwargs": {}, "max_episode_steps": None, "wrappers": []}'
HEAD = """
import gymnasium, numpy as np, typing
from ludus.config.registry import register
from ludus.config.sections import StrictConfig
"""


@pytest.mark.parametrize(
    ("module", "body", "env", "is_refused"),
    [
        ("", ENV + 'register("env", "mine")(Mine)', KIND, True),
        ("", ENV + 'gymnasium.register("Mine-v0", Mine)', GYM, True),
        (ENV + 'register("env", "mine")(Mine)', "import my_env", KIND, True),
        (ENV + 'register("env", "mine")(Mine)', 'ludus.load_plugin("my_env")', KIND, False),
    ],
    ids=["kind of the script", "id of the script", "imported module", "plugin"],
)
def test_an_env_that_the_evaluation_process_cannot_know_is_refused_before_training(
    module: str, body: str, env: str, is_refused: bool, tmp_path: Path, warm: WarmProcess
) -> None:
    (tmp_path / "my_env.py").write_text(HEAD + module)
    (tmp_path / "script.py").write_text(SCRIPT.format(body=body, env=env))
    code, printed = warm.run("script", path=str(tmp_path / "script.py"))
    assert code == 0, printed
    if not is_refused:
        assert json.loads(printed.splitlines()[-1])["env_steps"] == 512
        return
    assert "refused: the evaluation process cannot rebuild" in printed
    assert "ludus.load_plugin('that_module')" in printed
    assert not (tmp_path / "runs").exists()


def test_what_cannot_evaluate_is_refused_where_it_is_set() -> None:
    for kind in ("dqn", "supervised"):
        trainer: Any = ludus.build_trainer(ludus.example(kind))
        with pytest.raises(ConfigError, match=r"object cannot evaluate; .* evaluate\(agent\)"):
            trainer.set_evaluator(object())


def test_an_evaluator_may_return_a_record_and_its_score_is_always_logged(tmp_path: Path) -> None:
    class Recording:
        def __init__(self, answer: Any) -> None:
            self.answer = answer

        def evaluate(self, agent: Any) -> Any:
            return self.answer

    answers = [{"eval/return_mean": 3.0, "eval/more": 1.0}, {"mine": 3.0}, (3.0, {"mine": 4.0})]
    for number, answer in enumerate(answers):
        trainer: Any = ludus.build_trainer(small("dqn"))
        trainer.set_evaluator(Recording(answer))
        result = trainer.fit(root=str(tmp_path), name=str(number))
        assert result.best["score"] == 3.0
        assert set(history(result.run_dir, "eval/return_mean")) == {3.0}
    trainer = ludus.build_trainer(small("dqn"))
    trainer.set_evaluator(Recording({"one": 1.0, "two": 2.0}))
    with pytest.raises(LudusError, match="a mapping of metrics that holds eval/return_mean"):
        trainer.fit(root=str(tmp_path), name="unclear")


def test_a_network_that_another_process_cannot_build_is_not_judged_there(tmp_path: Path) -> None:
    from torch import nn

    body = nn.Sequential(nn.Flatten(), nn.LazyLinear(8))
    body.num_features = 8  # type: ignore[assignment]
    trainer: Any = ludus.build_trainer(small("dqn"))
    trainer.set_model(body)
    trainer.set_evaluator(ludus.AsyncEvaluator(small("dqn")))
    with pytest.raises(ConfigError, match="another process cannot build the network given"):
        trainer.fit(root=str(tmp_path))


ACROBOT = {**small("dqn").env.model_dump(), "id": "Acrobot-v1"}
SPACES = "'env of the evaluator' has other observations than the training env"


@pytest.mark.parametrize(
    ("trained", "made", "judged", "told"),
    [
        ("dqn", "Evaluator", small("sac"), SPACES),
        ("dqn", "Evaluator", small("dqn", env=ACROBOT), SPACES),
        ("dqn", "AsyncEvaluator", small("dqn", env=ACROBOT), SPACES),
        ("dqn", "Evaluator", small("dqn", **{"evaluation.env": ACROBOT}), SPACES),
        ("dqn", "Evaluator", small("dqn", **{"evaluation.more_envs": {"other": ACROBOT}}), SPACES),
        ("dqn", "Evaluator", ludus.example("supervised"),
         "made from a config of kind 'supervised', so it cannot judge what a trainer of kind 'dqn'"),
        ("supervised", "AsyncEvaluator", small("ppo"),
         "made from a config of kind 'ppo', so it cannot judge what a trainer of kind 'supervised'"),
        ("supervised", "Evaluator", ludus.example("supervised"),
         "the model cannot be measured on the data of the evaluator: "),
        ("supervised", "AsyncEvaluator", ludus.example("supervised"),
         "an AsyncEvaluator rebuilds what it judges from its own config, which has other values of model"),
        ("dqn", "AsyncEvaluator", small("iqn"), "other values of "),
        ("dqn", "AsyncEvaluator", small("dqn", **{"network.widths": [16]}), "values of network than"),
        ("dqn", "AsyncEvaluator", small("dqn", dueling=True), "other values of dueling than the trainer's"),
    ],
)  # fmt: skip
def test_an_evaluator_made_for_something_else_is_refused_before_work(
    trained: str, made: str, judged: Any, told: str, tmp_path: Path, tiny: Tiny
) -> None:
    trainer: Any = ludus.build_trainer(
        small(trained) if trained != "supervised" else tiny(**PATIENT)
    )
    trainer.set_evaluator(getattr(ludus, made)(judged))
    with pytest.raises(ConfigError) as caught:
        trainer.fit(root=str(tmp_path))
    assert told in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_a_subclass_that_another_process_cannot_know_is_not_judged_there(tmp_path: Path) -> None:
    from ludus.rl.agents.dqn import DqnTrainer

    class Mine(DqnTrainer):
        class Agent(DqnTrainer.Agent):  # type: ignore[misc, name-defined]
            """One of mine."""

    trainer = Mine(small("dqn"))
    trainer.set_evaluator(ludus.AsyncEvaluator(small("dqn")))
    with pytest.raises(ConfigError, match="was set, but only the registered trainer of kind 'dqn'"):
        trainer.fit(root=str(tmp_path))


def test_a_function_cannot_judge_in_another_process() -> None:
    for given in ({"score": len}, {}):
        with pytest.raises(
            ConfigError, match=r"takes a config, .* ludus.Evaluator\(score=function\)"
        ):
            ludus.AsyncEvaluator(**given)
