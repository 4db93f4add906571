"""Start a supervised run from another, and resume one with other values of some keys."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from ludus.core.starting import SavedTraining
from ludus.fit.rate_control import PART
from ludus.nn.start import StartTarget, same_name

if TYPE_CHECKING:
    from ludus.supervised.trainer import BaseTrainer


def starting(trainer: BaseTrainer) -> StartTarget:
    """Return the network, which can start as that of another run; a method of the trainer."""
    learners = {"": (trainer.update.learner, same_name)}
    return StartTarget(learners, then=[trainer.update.begin_mean])


def saved_training(state: Mapping[str, Any]) -> SavedTraining:
    """Return the network and the optimizer in a saved state."""
    return SavedTraining({"": {"weights": state["model"], "optimizer": state["optimizer"]}})


def changed_state(
    trainer: BaseTrainer, state: Mapping[str, Any], keys: Collection[str]
) -> Mapping[str, Any]:
    """Start the plateau over for another learning rate, and the judge for a first target, or none.

    A method of the trainer.
    """
    found = dict(state)
    if {"learning_rate_schedule", "optimizer.learning_rate"} & {*keys}:
        plateau = trainer.rate_control.state_dict()["plateau"]
        found[PART] = {**state[PART], "plateau": plateau}
    has_judge = "judge" in trainer.parts()
    if "evaluation.target" in keys and has_judge is not ("judge" in state):
        found.pop("judge", None)
        found |= {"judge": trainer.judge.state_dict()} if has_judge else {}
    return found
