"""A trainer of two roles keeps two best models, through kills, damage, and all commands that look at runs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from ludus.config.registry import register_trainer
from ludus.core import Repeat, Run, Stage, Stateful
from ludus.judge.judge import Judge
from ludus.judge.scores import Score
from ludus.show.report.page import write_report
from ludus.store import checkpoint
from ludus.store.bests import best_number, bests
from ludus.store.local import LocalStorage
from ludus.store.models import read_model, write_model
from ludus.testing.trainers import check_kill_anywhere
from tests.command_line import Ludus, in_process
from tests.toy import ToyTrainer, Work, toy_config


@register_trainer("two_roles")
class TwoRoles(ToyTrainer):
    """A host, whose return should rise, and a guest, whose error should fall."""

    def prepare(self, *, max_steps: int | None) -> None:
        super().prepare(max_steps=max_steps)
        self.guest = Work(self.config.seed + 1)
        self.judge = Judge(Score("host", "eval/return"), Score("guest", "eval/error"))

    def plan(self) -> Repeat:
        evaluate = Stage(name="evaluate", work=self.evaluate)
        times = self.config.num_rounds
        rounds = Repeat(
            name="round", times=times, counter="iteration", body=(self.stage("fit"), evaluate)
        )
        return Repeat(name="train", times=1, body=(rounds,))

    def parts(self) -> Mapping[str, Stateful]:
        return {**super().parts(), "guest": self.guest, "judge": self.judge}

    def evaluate(self, run: Run) -> Mapping[str, float]:
        self.guest.do("guest")
        found = {"eval/return": self.work.values.sum(), "eval/error": self.guest.values.sum()}
        metrics = {name: float(value) for name, value in found.items()}
        self.judge.update(run, metrics, self.weights)
        return metrics

    def weights(self, score: Score) -> dict[str, Tensor]:
        work = self.work if score.name == "host" else self.guest
        return {score.name: work.values.clone()}

    def weights_of(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"host": state["work"]["values"], "guest": state["guest"]["values"]}

    def evaluate_weights(
        self, weights: Mapping[str, Any], *, episodes: int | None = None, seed: int | None = None
    ) -> Mapping[str, float]:
        return {f"test/{name}": float(values.sum()) for name, values in weights.items()}

    def best(self) -> Mapping[str, Any] | None:
        return self.judge.best if hasattr(self, "judge") else None

    def more_bests(self) -> Mapping[str, Mapping[str, Any]]:
        return self.judge.more_bests if hasattr(self, "judge") else {}

    def forget_models(self, names: Collection[str] | None) -> None:
        self.judge.forget_models(names)


def make(num_rounds: int = 6) -> TwoRoles:
    return TwoRoles(toy_config("two_roles", num_rounds=num_rounds))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    make().fit(root=str(tmp_path), name="run")
    return tmp_path / "run"


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ludus:
    return in_process(monkeypatch, capsys)


def ended(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "events.jsonl").read_text().splitlines()[-1])
    return found


def test_each_role_has_its_best_model_and_old_ones_are_collected(run: Path) -> None:
    storage = LocalStorage(run)
    newest = checkpoint.read(storage, checkpoint.numbers(storage)[-1])
    kept = bests(newest.manifest)
    assert list(kept) == ["models/best", "models/best-guest"]
    assert set(newest.manifest["models"]) == {best["model"] for best in kept.values()}
    for copy, role in (("models/best", "host"), ("models/best-guest", "guest")):
        for name in (copy, kept[copy]["model"]):
            weights, note = read_model(storage, name)
            assert list(weights) == [role]
            assert float(weights[role].sum()) == pytest.approx(note["score"])
    needed = set()
    for number in checkpoint.numbers(storage):
        needed |= set(checkpoint.read(storage, number).manifest["models"])
    found = {f"models/{name}" for name in storage.names("models") if best_number(name) is not None}
    assert found == needed


def test_killed_anywhere_it_ends_with_both_bests_as_if_never_killed(tmp_path: Path) -> None:
    check_kill_anywhere(make, tmp_path, max_kills=3)


def test_what_came_after_the_checkpoint_is_put_back_for_each_score(run: Path) -> None:
    storage = LocalStorage(run)
    numbers = checkpoint.numbers(storage)
    after = storage.names("models")
    # What users keep there is theirs, even a copy of a copy.
    shutil.copytree(run / "models/best-guest", run / "models/best-mine")
    (run / "models/best-notes").mkdir()
    shutil.rmtree(run / f"checkpoints/{numbers[-1]:010d}")
    stale = run / "models/best-guest-9999999999"
    shutil.copytree(run / "models/best-guest", stale)
    write_model(storage, "models/best-other", {}, {"model": "models/best-other-0000000001"})
    make().fit(root=str(run.parent), name="run", resume=True)
    assert storage.names("models") == sorted([*after, "best-mine", "best-notes"])


@pytest.mark.parametrize("copy", ["models/best", "models/best-guest"])
def test_a_damaged_best_of_either_score_comes_back_from_its_own_copy(run: Path, copy: str) -> None:
    storage = LocalStorage(run)
    newest = checkpoint.read(storage, checkpoint.numbers(storage)[-1])
    model = bests(newest.manifest)[copy]["model"]
    whole = (run / model / "weights.safetensors").read_bytes()
    (run / model / "weights.safetensors").write_bytes(b"")
    make().fit(root=str(run.parent), name="run", resume=True)
    assert (run / model / "weights.safetensors").read_bytes() == whole
    assert f"restored from {copy}" in (run / "events.jsonl").read_text()


def test_a_best_that_is_lost_costs_that_score_alone(run: Path) -> None:
    storage = LocalStorage(run)
    kept = make().fit(root=str(run.parent), name="run", resume=True)
    for model in storage.names("models"):
        if model.startswith("best-guest"):
            (run / "models" / model / "weights.safetensors").write_bytes(b"")
    # Longer, so that it goes on and says again what it knows.
    result = make(7).fit(root=str(run.parent), name="run", resume="approximate")
    assert result.best is not None
    assert kept.best is not None
    assert result.best["score"] >= kept.best["score"]
    assert result.more_bests["guest"]["counters"]["opt_steps"] == 7
    told = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    lost = [event["reason"] for event in told if event["event"] == "best_model_lost"]
    assert len(lost) == 1
    assert lost[0].startswith("models/best-guest-")


def test_commands_show_both_and_take_either(run: Path, call: Ludus) -> None:
    highest, lowest = (best["score"] for best in bests(ended(run)).values())
    told = call("eval", str(run), "--json").json
    assert told["metrics"] == {"test/host": pytest.approx(highest)}
    assert call("eval", str(run), "--model", "best-host", "--json").json == told
    told = call("eval", str(run), "--model", "best-guest", "--json").json
    assert told["metrics"] == {"test/guest": pytest.approx(lowest)}
    assert told["model"].startswith("models/best-guest-0")
    assert set(call("eval", str(run), "--model", "last", "--json").json["metrics"]) == {
        "test/host",
        "test/guest",
    }
    refusal = call("eval", str(run), "--model", "best-nobody").refusal()
    assert "give best, last, or the directory of a model" in refusal
    assert "best-guest" in refusal
    shutil.rmtree(run / told["model"])
    again = call("eval", str(run), "--model", "best-guest", "--json").json
    assert (again["model"], again["metrics"]) == ("models/best-guest", told["metrics"])
    row = call("runs", "--root", str(run.parent), "--json").json["runs"][0]
    assert row["best_metric"] == "eval/return"
    assert row["more_bests"]["guest"]["score"] == pytest.approx(lowest)
    listed = call("runs", "--root", str(run.parent)).out
    assert f"eval/return {highest:.5g}, eval/error {lowest:.5g}" in listed


def test_a_report_names_both_best_models(run: Path) -> None:
    page = Path(write_report([str(run)], None)).read_text()
    assert "highest eval/return" in page
    assert "lowest eval/error" in page
    # Charts of what is judged come first, of whichever score.
    error, fit, returns = (page.index(f"<figcaption>{n}<") for n in ("error", "fit", "return"))
    assert max(error, returns) < fit
    for best in bests(ended(run)).values():
        assert best["model"] in page
