"""One judge for every family: each score has its direction, its best model, its patience and its target."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import Any

import pytest
import torch

import ludus
from ludus import Logger, Run
from ludus.config import families
from ludus.core.cursor import Frame
from ludus.core.errors import ConfigError, Diverged, LudusError
from ludus.judge.directions import Direction, direction_of, known_direction
from ludus.judge.divergence import DivergenceGuard, WatchDivergence
from ludus.judge.judge import Judge, JudgeLog, leave_loop
from ludus.judge.scores import Score, is_better

NAN, INF = math.nan, math.inf


class Kept:
    """Remembers which models were kept, with what weights and note."""

    def __init__(self) -> None:
        self.models: list[tuple[str, Any, dict[str, Any]]] = []

    def __call__(self, name: str, weights: Any, note: Mapping[str, Any], /) -> None:
        self.models.append((name, weights, dict(note)))

    @property
    def names(self) -> list[str]:
        return [name for name, _, _ in self.models]


def run_at(boundary: int, kept: Kept | None = None) -> Run:
    run = Run()
    run.boundaries = boundary
    run.counters["opt_steps"] = 10 * boundary
    run.keep_model = Kept() if kept is None else kept
    return run


def weights_of(score: Score) -> dict[str, Any]:
    return {"of": score.name}


@pytest.mark.parametrize(
    ("metric", "direction"),
    [
        ("validation/epoch_loss", "min"),
        ("train/epoch_accuracy", "max"),
        ("eval/episode_reward", "max"),
        ("eval/win_rate", "max"),
        ("eval/host/return_mean", "max"),
        ("test/mse", "min"),
        ("validation/loss_of_reward", "min"),
    ],
)
def test_the_direction_of_a_metric_goes_by_its_name(metric: str, direction: Direction) -> None:
    assert direction_of(metric) == direction
    assert direction_of(metric, "max") == "max"
    assert direction_of(metric, "min") == "min"


@pytest.mark.parametrize("metric", ["closs", "eval/speed", "eval/return_std", "eval/return_se"])
def test_a_metric_of_unknown_direction_asks_for_one(metric: str) -> None:
    told = (
        f"cannot tell whether '{metric}' should go up or down; set mode to min or max, or declare"
    )
    with pytest.raises(ConfigError, match=told):
        direction_of(metric)
    with pytest.raises(ConfigError, match=told):
        Score("speed", metric)


def test_a_declared_direction_goes_before_the_words_of_a_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    families.families()
    monkeypatch.setattr(families, "_ROOMS", dict(families._ROOMS))
    assert known_direction("eval/margin_mean") is None
    ludus.declare(__name__, directions={"margin": "max", "golf/score": "min", "game_length": "min"})
    assert known_direction("eval/margin_mean") == "max"
    assert known_direction("golf/score") == "min"
    assert known_direction("eval/score") == "max"
    assert known_direction("eval/game_length") == "min"
    assert known_direction("eval/length") is None
    assert Score("golf", "golf/score").mode == "min"


def test_better_is_finite_and_strict() -> None:
    assert is_better(0.5, None, "min")
    assert is_better(-1.0, 0.0, "min")
    assert is_better(0.1, 0.0, "max")
    for score in (0.0, NAN, INF, -INF):
        assert not is_better(score, 0.0, "min")
        assert not is_better(score, 0.0, "max")
    assert not is_better(NAN, None, "min")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"name": "The host"}, "a score is named 'The host'; use lower-case letters"),
        ({"direction": "up"}, "direction of the score 'host' is 'up'; give min or max"),
        ({"patience": 0}, "the patience of the score 'host' must be 1 or more"),
        ({"min_delta": -1.0}, "the min_delta of the score 'host' must be 0 or more"),
        ({"target": NAN}, "the target of the score 'host' must be finite"),
    ],
)
def test_a_score_that_cannot_be_judged_is_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Score(**{"name": "host", "metric": "eval/return", **given})


def test_two_scores_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="two scores are named 'host'"):
        Judge(Score("host", "eval/return"), Score("host", "eval/win_rate"))


def slow_stop(scores: list[float], mode: Direction, patience: int, delta: float) -> int | None:
    """Return the evaluation that ends the run, by looking at the whole history each time."""
    best, bad = None, 0
    for number, score in enumerate(scores, start=1):
        gain = None if best is None else (score - best if mode == "max" else best - score)
        if math.isfinite(score) and (gain is None or gain > delta):
            best, bad = score, 0
        else:
            bad += 1
        if bad == patience:
            return number
    return None


def first_stop(scores: list[float], mode: Direction, patience: int, delta: float) -> int | None:
    judge = Judge(Score("m", "m", mode, patience=patience, min_delta=delta, keeps_best=False))
    for number, score in enumerate(scores, start=1):
        run = run_at(number)
        judge.update(run, {"m": score}, weights_of)
        # The state is all there is: another judge goes on from it.
        state = judge.state_dict()
        judge.reset()
        judge.load_state_dict(state)
        if run.stop_reason is not None:
            return number
    return None


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("delta", [0.0, 0.25])
def test_patience_is_the_slow_obvious_rule(mode: Direction, delta: float) -> None:
    draw = random.Random(5)
    for _ in range(100):
        # Quarters are exact in binary, so that ties are ties.
        scores = [draw.choice([NAN, INF, draw.randint(-8, 8) / 4]) for _ in range(25)]
        patience = draw.randint(1, 6)
        assert first_stop(scores, mode, patience, delta) == slow_stop(scores, mode, patience, delta)


def test_the_best_model_goes_by_the_direction_and_a_tie_keeps_the_earlier() -> None:
    kept, judge = Kept(), Judge(Score("m", "m", "max"))
    for number, score in enumerate((-3.0, -5.0, -2.0, NAN, -2.0, INF), start=1):
        judge.update(run_at(number, kept), {"m": score}, weights_of)
    assert kept.names == ["models/best-0000000001", "models/best-0000000003"]
    assert kept.models[-1][1] == {"of": "m"}
    assert judge.best == kept.models[-1][2]
    assert judge.best == {
        "metric": "m",
        "mode": "max",
        "score": -2.0,
        "model": "models/best-0000000003",
        "counters": {"opt_steps": 30},
    }


def two_roles(**more: Any) -> Judge:
    return Judge(
        Score("host", "eval/host_return", patience=2, **more),
        Score("guest", "eval/guest_error", patience=3),
    )


def both(host: float, guest: float) -> dict[str, float]:
    return {"eval/host_return": host, "eval/guest_error": guest}


def test_each_score_has_a_best_model_of_its_own_with_weights_of_its_own() -> None:
    kept, judge = Kept(), two_roles()
    for number, metrics in enumerate((both(1, 5), both(2, 6), both(0, 4)), start=1):
        judge.update(run_at(number, kept), metrics, weights_of)
    assert [(name, weights["of"]) for name, weights, _ in kept.models] == [
        ("models/best-0000000001", "host"),
        ("models/best-guest-0000000001", "guest"),
        ("models/best-0000000002", "host"),
        ("models/best-guest-0000000003", "guest"),
    ]
    assert judge.best is not None
    assert (judge.best["score"], judge.best["counters"]) == (2, {"opt_steps": 20})
    assert list(judge.more_bests) == ["guest"]
    assert judge.more_bests["guest"]["model"] == "models/best-guest-0000000003"
    again = two_roles()
    again.load_state_dict(judge.state_dict())
    assert (again.best, again.more_bests) == (judge.best, judge.more_bests)


def test_a_run_stops_when_every_score_that_has_a_patience_has_used_it_up() -> None:
    judge = two_roles()
    reasons = []
    # The host is no better from the third on, the guest from the fourth on.
    for number, metrics in enumerate(
        (both(1, 9), both(2, 8), both(2, 7), both(2, 7), both(2, 7), both(2, 7)), start=1
    ):
        run = run_at(number)
        judge.update(run, metrics, weights_of)
        reasons.append(run.stop_reason)
    assert reasons[:5] == [None] * 5
    assert reasons[5] == (
        "eval/host_return has not improved for 4 evaluations and"
        " eval/guest_error has not improved for 3 evaluations"
    )


@pytest.mark.parametrize(
    ("mode", "short", "reached"), [("max", [2.9, -9.0], [3.0, 4.0]), ("min", [3.1], [3.0, -4.0])]
)
def test_a_run_stops_when_any_score_reaches_its_target(
    mode: Direction, short: list[float], reached: list[float]
) -> None:
    judge = Judge(Score("a", "a", "max"), Score("b", "b", mode, target=3.0))
    for value in (*short, NAN, INF, -INF):
        run = run_at(1)
        judge.update(run, {"a": 0.0, "b": value}, weights_of)
        assert run.stop_reason is None
    for value in reached:
        run = run_at(2)
        judge.update(run, {"a": 0.0, "b": value}, weights_of)
        assert run.stop_reason == f"b reached {value:g}, the target being 3"


def test_an_evaluation_may_be_of_some_scores_and_does_not_judge_the_others() -> None:
    judge = two_roles()
    for number in range(1, 9):
        run = run_at(number)
        judge.update(run, {"eval/host_return": 1.0}, weights_of, scores=["host"])
        assert run.stop_reason is None
    assert judge.score_states["guest"].num_bad == 0
    assert judge.score_states["host"].num_bad == 7


def test_an_evaluation_that_lacks_the_metric_of_a_score_is_refused_before_any_is_judged() -> None:
    judge = two_roles()
    with pytest.raises(
        LudusError, match=r"score 'guest' is .*the evaluation gave eval/host_return;"
    ):
        judge.update(run_at(1), {"eval/host_return": 1.0}, weights_of)
    assert judge.score_states["host"].peak is None


@pytest.mark.parametrize(("is_open", "leaving"), [(True, "epoch"), (False, None)])
def test_a_judgement_after_its_loop_has_closed_ends_nothing(
    is_open: bool, leaving: str | None
) -> None:
    judge = Judge(Score("loss", "loss", patience=1), end=leave_loop("epoch"))
    run = run_at(1)
    run.cursor = [Frame("train"), Frame("epoch" if is_open else "settle")]
    for value in (1.0, 2.0):
        judge.update(run, {"loss": value}, weights_of)
    assert (run.leaving, run.stop_reason) == (leaving, None)


def test_a_score_given_as_a_tensor_is_a_number_in_the_state_that_is_loaded_again() -> None:
    judge, kept = Judge(Score("m", "m", "max", patience=3)), Kept()
    judge.update(run_at(1, kept), {"m": torch.tensor(1.5)}, weights_of)  # type: ignore[dict-item]
    assert type(judge.score_states["m"].peak) is float
    again = Judge(Score("m", "m", "max", patience=3))
    again.load_state_dict(judge.state_dict())
    assert again.best is not None
    assert again.best["score"] == 1.5
    with pytest.raises(
        LudusError, match="the evaluation gave m as a Tensor; a score is one number"
    ):
        judge.update(run_at(2, kept), {"m": torch.ones(2)}, weights_of)  # type: ignore[dict-item]


def test_a_judge_may_leave_one_loop_rather_than_stop_the_run_and_begin_anew() -> None:
    left: list[str] = []
    judge = Judge(Score("loss", "loss", patience=1), end=lambda run, reason: left.append(reason))
    run = run_at(1)
    for value in (1.0, 2.0):
        judge.update(run, {"loss": value}, weights_of)
    assert (left, run.stop_reason) == (["loss has not improved for 1 evaluations"], None)
    judge.reset()
    assert (judge.best, judge.score_states["loss"].num_bad) == (None, 0)


def test_models_that_are_elsewhere_are_forgotten_and_patience_is_not() -> None:
    judge = two_roles()
    for _ in range(2):
        judge.update(run_at(1), both(1, 1), weights_of)
    first = judge.best
    judge.forget_models(["models/best-guest-0000000001"])
    assert (judge.best, judge.more_bests) == (first, {})
    judge.forget_models(None)
    assert judge.best is None
    assert judge.score_states["host"].num_bad == 1


def test_a_boundary_without_a_new_value_is_not_a_bad_one() -> None:
    logger, run = Logger({"backends": []}), run_at(1)
    judge = Judge(Score("m", "m", "min", patience=1))
    watch = JudgeLog(judge, logger, weights_of, keep=None)
    logger.log("m", 1.0)
    logger.write(run)
    watch(run)
    run.boundaries = 2
    watch(run)
    logger.log("other", 1.0)
    logger.write(run)
    watch(run)
    assert run.stop_reason is None
    logger.log("m", 1.0)
    logger.write(run)
    watch(run)
    assert run.stop_reason is not None


@pytest.mark.parametrize("name", ["train/loss", "train/grad_norm", "train/epoch_loss"])
@pytest.mark.parametrize("bad", [NAN, INF])
def test_the_guard_ends_a_run_whose_loss_or_gradient_is_not_finite(name: str, bad: float) -> None:
    guard = DivergenceGuard(remedy="pray")
    assert guard.diverged({name: 1.0, "eval/return": NAN}) is None
    assert guard.diverged({name: bad}) == name
    logger, run, checked = Logger({"backends": []}), run_at(3), list[int]()
    watch = WatchDivergence(guard, logger, check=lambda: checked.append(1))
    logger.log(name, torch.tensor(1.0))
    logger.write(run)
    watch(run)
    logger.log(name, torch.tensor(bad))
    logger.write(run)
    with pytest.raises(
        Diverged, match=f"{name} became {bad} by opt_step 30; lower the .* max_grad_norm, or pray"
    ):
        watch(run)
    run.boundaries = 4
    watch(run)
    assert len(checked) == 2
