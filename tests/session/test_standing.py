"""A run says in one of three words how exact it is, wherever it is asked."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ludus.config.registry import register_trainer
from ludus.core import CheckpointError, Repeat, Run
from ludus.core.exactness import Exact, exact_word
from ludus.core.states import check_same_parts
from ludus.session import exactness as standing_of_run
from ludus.store import checkpoint, proofs
from ludus.store.local import LocalStorage
from tests.toy import ToyTrainer, toy_config


@register_trainer("toy_standing")
class RunExactness(ToyTrainer):
    """Three rounds of one stage."""

    def plan(self) -> Repeat:
        rounds = Repeat(name="round", times=3, body=(self.stage("train_step"),))
        return Repeat(name="train", times=1, body=(rounds,))


class Silent:
    """Does nothing, and belongs to a script."""

    def after_train_step(self) -> None:
        pass


class Interrupts:
    """Has a run stop after its first step."""

    def after_train_step(self, run: Run) -> None:
        run.interrupted = run.counters["opt_steps"] == 1


class Counter:
    """Counts, and saves nothing."""

    def __init__(self) -> None:
        self.count = 0

    def after_train_step(self) -> None:
        self.count += 1


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUDUS_CACHE", str(tmp_path / "cache"))


def words_of(place: Path) -> set[Any]:
    """Return what run.json, the newest manifest and the last event say."""
    storage = LocalStorage(place)
    event = json.loads((place / "events.jsonl").read_text().splitlines()[-1])
    manifest = checkpoint.verify(storage, checkpoint.numbers(storage)[-1])
    return {
        json.loads((place / "run.json").read_text())["exact"],
        event["exact"],
        manifest["exact"],
    }


def fit(root: Path, name: str, *, is_counting: bool = False, num_rounds: int = 3) -> Any:
    trainer = RunExactness(toy_config("toy_standing", num_rounds=num_rounds))
    if is_counting:
        trainer.add(Counter(), name="mine")
    return trainer.fit(root=str(root), name=name, resume=True)


def test_a_run_against_which_nothing_speaks_is_expected_to_be_exact(tmp_path: Path) -> None:
    result = fit(tmp_path, "run")
    assert result.exact == "expected"
    assert result.exact
    assert words_of(tmp_path / "run") == {"expected"}


def test_a_run_with_a_reason_against_it_says_no(tmp_path: Path) -> None:
    result = fit(tmp_path, "run", is_counting=True)
    assert result.exact == "no"
    assert not result.exact
    assert result.inexact_because
    assert words_of(tmp_path / "run") == {"no"}


def test_a_run_of_what_was_verified_is_proved_and_one_of_another_config_is_not(
    tmp_path: Path,
) -> None:
    fit(tmp_path, "verified")
    assert proofs.record(tmp_path / "verified", num_kills=5)
    assert fit(tmp_path, "run").exact == "proved"
    assert words_of(tmp_path / "run") == {"proved"}
    assert fit(tmp_path, "longer", num_rounds=4).exact == "expected"


def test_a_proof_does_not_outweigh_a_reason_against_it(tmp_path: Path) -> None:
    fit(tmp_path, "verified")
    proofs.record(tmp_path / "verified", num_kills=5)
    assert fit(tmp_path, "run", is_counting=True).exact == "no"


def test_what_was_proved_stays_so_when_the_run_is_resumed_without_the_proof(
    tmp_path: Path,
) -> None:
    fit(tmp_path, "verified")
    proofs.record(tmp_path / "verified", num_kills=5)
    fit(tmp_path, "run")
    proofs.forget(tmp_path / "verified")
    assert fit(tmp_path, "run").exact == "proved"


def test_a_run_is_no_longer_proved_once_the_script_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "train.py"
    script.write_text("print(1)\n")
    monkeypatch.setattr(sys, "argv", [str(script)])

    def go(name: str) -> Any:
        trainer = RunExactness(toy_config("toy_standing"))
        trainer.add(Silent(), name="mine")
        return trainer.fit(root=str(tmp_path), name=name, resume=True)

    go("verified")
    proofs.record(tmp_path / "verified", num_kills=5)
    assert go("run").exact == "proved"
    assert go("run").exact == "proved"
    script.write_text("print(2)\n")
    assert go("run").exact == "expected"


@pytest.mark.parametrize(
    ("by", "then", "now", "is_kept"),
    [
        ("verify", ("a", "c"), ("a", "c"), True),
        ("verify", ("a", "c"), ("b", "c"), False),
        ("overlap", ("a", "c"), ("a", "c"), True),
        ("overlap", ("a", "c"), ("b", "d"), False),
        ("overlap", (None, "c"), (None, "c"), True),
        ("overlap", (None, "c"), (None, "d"), False),
        ("verify", (None, "c"), (None, "c"), False),
        ("overlap", (None, "c"), ("a", "c"), False),
    ],
)
def test_a_proof_is_kept_on_resume_only_for_what_it_was_of(
    by: str, then: tuple[str | None, str], now: tuple[str | None, str], is_kept: bool
) -> None:
    trainer = RunExactness(toy_config("toy_standing"))
    entry = {"inexact_because": [], "proof": {"by": by, "key": then[0], "code": then[1]}}
    exactness = standing_of_run.RunExactness(trainer, is_transplant=False)
    exactness.of = proofs.ProofSubject(*now)
    exactness.take_up({**entry, "exact": "proved"}, [])
    assert exactness.entry()["exact"] == ("proved" if is_kept else "expected")
    exactness.take_up({**entry, "exact": "proved", "proof": None}, [])
    assert exactness.entry()["exact"] == "expected"


@pytest.mark.parametrize(
    ("told", "word"),
    [(True, "expected"), (False, "no"), ("proved", "proved"), ("yes", None), (1, None), ([], None)],
)
def test_what_an_earlier_ludus_wrote_is_read_as_a_word(told: object, word: str | None) -> None:
    assert exact_word(told) == word


def test_only_no_is_false() -> None:
    assert [bool(word) for word in (Exact.PROVED, Exact.EXPECTED, Exact.NO)] == [True, True, False]


class Game:
    """A game of a script's own, with a state to save."""

    def __init__(self) -> None:
        self.count = 0

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.count = state["count"]


class Playing(RunExactness):
    """Asks a game, which is a part wherever it has a state."""

    game: Game | None = None

    def consulted(self) -> Mapping[str, object]:
        return {"game": self.game} if self.game is not None else {}


def test_a_run_of_before_games_were_saved_goes_on_and_says_what_it_has_no_state_of(
    tmp_path: Path,
) -> None:
    trainer = Playing(toy_config("toy_standing", num_rounds=3))
    trainer.add(Interrupts(), name="mine")
    assert trainer.fit(root=str(tmp_path), name="run").status == "interrupted"
    later = Playing(toy_config("toy_standing", num_rounds=3))
    later.add(Interrupts(), name="mine")
    later.game = Game()
    result = later.fit(root=str(tmp_path), name="run", resume=True)
    assert (result.status, result.exact) == ("finished", "no")
    (reason,) = result.inexact_because
    assert reason.startswith("'given.game' was resumed at boundary 1 without its state")


@pytest.mark.parametrize("name", ["given.evaluator", "given.recorder", "callback.mine", "work"])
def test_what_was_always_saved_is_missed(name: str) -> None:
    with pytest.raises(CheckpointError, match=f"the saved state has no {name}"):
        check_same_parts({"run": 1, name: 2}, {"run": 0})
