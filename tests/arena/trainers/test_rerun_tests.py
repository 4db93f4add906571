"""What an earlier run has kept is tested again, and nothing is trained."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.core.errors import CheckpointError, ConfigError
from tests.arena.small import QUIET, example, small_arena
from tests.arena.small_solo import small_solo

EARLIER = {
    "rl.num_test_iterations": 1,
    "keep_every_iterations": 1,
    "evaluate_every_iterations": 3,
}


@pytest.fixture(scope="session")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the directory of a run of PPO that kept a best model, one by the way and the last."""
    root = tmp_path_factory.mktemp("earlier")
    return str(ludus.build_trainer(small_arena(**EARLIER)).fit(root=str(root)).run_dir)


def rerun(run: str, **changed: Any) -> Any:
    """Return the config of tests of an earlier run."""
    return example("rerun_tests").replace(**{**QUIET, "run": run, **changed})


def records(config: Any, root: Path, name: str = "tests") -> list[dict[str, Any]]:
    result = ludus.build_trainer(config).fit(root=str(root), name=name)
    lines = Path(str(result.run_dir), "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def last_test(run: str) -> dict[str, Any]:
    lines = Path(run, "metrics.jsonl").read_text().splitlines()
    return numbers(json.loads(lines[-1]))


@pytest.mark.covers("002-S13")
def test_every_kept_model_is_tested_under_the_counters_of_its_training(
    earlier: str, tmp_path: Path
) -> None:
    found = records(rerun(earlier), tmp_path)
    # Three by the way, the best and the last; models/best is a copy.
    assert [row["opt_steps"] for row in found] == [4, 8, 12, 12, 12]
    assert [row["iteration"] for row in found] == [1, 2, 3, 3, 3]
    assert [row["text"]["model"] for row in found][:2] == ["models/4", "models/8"]


@pytest.mark.covers("002-S13")
def test_a_rerun_of_the_last_model_repeats_the_test_of_the_run_itself(
    earlier: str, tmp_path: Path
) -> None:
    (found,) = records(rerun(earlier, models=["final"]), tmp_path)
    told = last_test(earlier)
    assert told
    assert {name: found[name] for name in told} == told


def test_agents_of_each_checkpoint_are_tested_too_where_that_is_asked_for(
    earlier: str, tmp_path: Path
) -> None:
    alone = records(rerun(earlier, models=[], checkpoints=True), tmp_path, "alone")
    assert len(alone) == len(list(Path(earlier, "checkpoints").iterdir()))
    told = last_test(earlier)
    assert {name: alone[-1][name] for name in told} == told


def test_a_named_model_alone_is_tested(earlier: str, tmp_path: Path) -> None:
    assert len(records(rerun(earlier, models=["best"]), tmp_path)) == 1


def test_more_episodes_and_other_ones_give_other_numbers(earlier: str, tmp_path: Path) -> None:
    plain, more, other, third = (
        numbers(records(rerun(earlier, models=["final"], **changed), tmp_path, name)[0])
        for name, changed in {
            "plain": {},
            "more": {"episodes": 16},
            "other": {"other_episodes": True, "seed": 1},
            "third": {"other_episodes": True, "seed": 2},
        }.items()
    )
    again = records(rerun(earlier, models=["final"], seed=2), tmp_path, "again")[0]
    assert numbers(again) == plain
    assert plain not in (more, other)
    assert other not in (more, third)


def numbers(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name.startswith("test/")}


def test_agents_that_learned_alone_are_tested_alone(tmp_path: Path) -> None:
    run = str(ludus.build_trainer(small_solo()).fit(root=str(tmp_path), name="alone").run_dir)
    (found,) = records(rerun(run, models=["final"]), tmp_path)
    told = last_test(run)
    assert {name: found[name] for name in told} == told
    with pytest.raises(ConfigError, match="trained on data, not in episodes"):
        records(rerun(run, episodes=3), tmp_path, "refused")


def test_a_run_of_tests_that_was_interrupted_tests_the_models_it_had_listed(
    earlier: str, tmp_path: Path
) -> None:
    whole = records(rerun(earlier), tmp_path, "whole")
    trainer = ludus.build_trainer(rerun(earlier))
    trainer.add(_Interrupts())
    assert trainer.fit(root=str(tmp_path), name="broken").status == "interrupted"
    again = ludus.build_trainer(rerun(earlier, models=["final"]).replace(models=None))
    again.add(_Interrupts(is_idle=True))
    again.fit(root=str(tmp_path), name="broken", resume=True)
    lines = (tmp_path / "broken" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == whole


class _Interrupts:
    def __init__(self, *, is_idle: bool = False) -> None:
        self._is_idle = is_idle

    def after_test(self, run: Any) -> None:
        run.interrupted = not self._is_idle


@pytest.mark.parametrize(
    ("counters", "sentence"),
    [
        ("far", "'counters' is 'far', not a mapping of names"),
        ([1, 2], "'counters' is a list, not a mapping of names"),
        ({"opt_steps": "many"}, "'counters/opt_steps' is 'many', not a whole number"),
        ({"opt_steps": -1}, "'counters/opt_steps' is -1; it must be 0 or more"),
    ],
)
def test_counters_that_somebody_has_edited_are_one_sentence(
    counters: object, sentence: str, earlier: str, tmp_path: Path
) -> None:
    edited = shutil.copytree(earlier, tmp_path / "edited")
    note = edited / "models" / "final" / "model.json"
    note.write_text(json.dumps({**json.loads(note.read_text()), "counters": counters}))
    with pytest.raises(CheckpointError) as caught:
        ludus.build_trainer(rerun(str(edited))).fit(root=str(tmp_path), name="tests")
    assert f"models/final/model.json has changed since it was saved: {sentence}" in str(
        caught.value
    )
    assert not (tmp_path / "tests").exists()


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"models": ["worst"]}, "'models' names worst, which .* has not kept; it has .*final"),
        ({"models": []}, "there is nothing to test"),
        ({"run": "nowhere"}, "'run': nowhere is not a run directory"),
    ],
)
def test_what_cannot_be_tested_is_one_sentence(
    changed: dict[str, Any], sentence: str, earlier: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        ludus.build_trainer(rerun(**{"run": earlier, **changed})).fit(root=str(tmp_path))


def test_a_run_with_a_callback_is_tested_again_like_one_without(tmp_path: Path) -> None:
    class Silent:
        def after_iteration(self) -> None:
            """Do nothing."""

    trainer = ludus.build_trainer(small_arena())
    trainer.add(Silent())
    trainer.fit(root=str(tmp_path), name="earlier")
    assert records(rerun(str(tmp_path / "earlier")), tmp_path)
