"""A trainer of two roles keeps two best models, each of its own role and of its own moment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ludus.store.models import read_model
from ludus.store.places import open_storage
from ludus.testing.trainers import check_kill_anywhere, run_trainer
from tests.conftest import modules_in

toy: Any = modules_in("contracts/trainers")["toy_game"]


class Careless(toy.ToyGame):
    """Keeps the host's weights as the best of either role."""

    def evaluate(self, run: Any) -> Any:
        metrics = {
            "eval/host_return": self.distance("host"),
            "eval/guest_error": self.distance("guest"),
        }
        self.judge.update(run, metrics, lambda score: toy.copied(self.learners["host"]))
        return metrics


class Unlisted(toy.ToyGame):
    """Forgets to list what is believed of the other role among its parts."""

    def parts(self) -> Any:
        parts = dict(super().parts())
        del parts["targets"]
        return parts


def check_bests(trainer: Any, place: Path) -> None:
    """Load the best weights of each role and see that they score what is said of them."""
    storage = open_storage(place)
    for role, name in (("host", "models/best"), ("guest", "models/best-guest")):
        trainer.learners[role].load_weights(read_model(storage, name)[0])
        assert trainer.distance(role) == trainer.judge.score_states[role].best["score"]


def test_each_role_has_the_best_weights_of_its_own(tmp_path: Path) -> None:
    trainer = toy.make()
    result = trainer.fit(root=str(tmp_path), name="run")
    check_bests(trainer, tmp_path / "run")
    host, guest = result.best, result.more_bests["guest"]
    assert host["counters"] != guest["counters"], "they are best at different times"


def test_one_roles_weights_kept_for_the_other_are_seen(tmp_path: Path) -> None:
    trainer = Careless(toy.make().config)
    trainer.fit(root=str(tmp_path), name="run")
    with pytest.raises(AssertionError):
        check_bests(trainer, tmp_path / "run")


def test_the_best_weights_of_both_roles_are_there_after_a_kill(tmp_path: Path) -> None:
    run_trainer(toy.make, tmp_path, "run", kill_at=30)
    trainer = toy.make()
    run_trainer(lambda: trainer, tmp_path, "run")
    check_bests(trainer, tmp_path / "run")


def test_a_role_whose_belief_is_in_no_part_is_seen_by_the_kill_contract(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="other bytes at the end"):
        check_kill_anywhere(lambda: Unlisted(toy.make().config), tmp_path)
