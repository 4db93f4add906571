"""The saved state of a vector env, split for workers and joined again.

The state of N envs is the same whatever the number of workers that step them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ludus.core import states
from ludus.core.errors import CheckpointError


class _Envs(Protocol):
    """Envs stepped together, here or in workers, with their arrays."""

    num_envs: int
    obs: np.ndarray
    cut: np.ndarray
    masks: np.ndarray | None


def check(state: Mapping[str, Any], env: _Envs, *, actions: np.ndarray | None, name: str) -> None:
    """Raise CheckpointError unless this is a state of such envs.

    `actions` is one row of their journal; None if no actions are kept, or if it is unknown here.
    """
    names = ("episodes", "journal", "states", "obs", "masks", "cut", "inexact")
    states.check_keys(state, *names)
    count = env.num_envs
    episodes = states.shaped(state, "episodes", np.zeros(0, np.int64), (None,))
    if len(episodes) != count:
        raise CheckpointError(f"{name}: {len(episodes)} envs were saved, there are {count}")
    states.between("episodes", episodes, low=-1, high=2**53)
    if (episodes < 0).any() and (episodes >= 0).any():
        raise states.StateError("episodes", "says that some envs have begun and others have not")
    with states.within("journal"):
        _check_journal(state["journal"], count, actions)
    if own := states.rows(state, "states"):
        states.rows({"states": own}, "states", length=count)
    states.like(state, "obs", env.obs, finite=True)
    states.like(state, "cut", env.cut)
    if env.masks is not None:
        states.like(state, "masks", env.masks)
    elif state["masks"] is not None:
        raise states.StateError("masks", "is there, where these envs have none")
    states.texts(state, "inexact")


def _check_journal(journal: Mapping[str, Any], count: int, actions: np.ndarray | None) -> None:
    # States of older versions have no marks.
    states.check_keys(journal, "lengths", "actions", optional=("marks",))
    lengths = states.like(journal, "lengths", np.zeros(count, np.int64))
    states.between("lengths", lengths, low=0, high=2**40)
    if actions is not None:
        rows = (int(lengths.sum()), *actions.shape[1:])
        states.shaped(journal, "actions", actions, rows, finite=True)
    if journal.get("marks") is not None:
        marks = states.like(journal, "marks", np.zeros(count, np.int64))
        states.between("marks", marks, low=0, high=2**32 - 1)


def split(state: Mapping[str, Any], first: int, stop: int) -> dict[str, Any]:
    """Return the state of the envs from `first` to before `stop`, without the reasons for inexactness."""
    journal, masks = state["journal"], state["masks"]
    ends = np.cumsum([0, *journal["lengths"].tolist()])
    actions, marks = journal["actions"], journal.get("marks")
    return {
        "episodes": state["episodes"][first:stop],
        "journal": {
            "lengths": journal["lengths"][first:stop],
            "actions": None if actions is None else actions[ends[first] : ends[stop]],
            "marks": None if marks is None else marks[first:stop],
        },
        "states": state["states"][first:stop],
        "obs": state["obs"][first:stop],
        "masks": None if masks is None else masks[first:stop],
        "cut": state["cut"][first:stop],
        "inexact": [],
    }


def join(pieces: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the state of all envs from those of their slices, in order."""
    journals = [state["journal"] for state in pieces]
    return {
        "episodes": _joined(pieces, "episodes"),
        "journal": {name: _joined(journals, name) for name in ("lengths", "actions", "marks")},
        "states": [one for state in pieces for one in state["states"]],
        "obs": _joined(pieces, "obs"),
        "masks": _joined(pieces, "masks"),
        "cut": _joined(pieces, "cut"),
        "inexact": [reason for state in pieces for reason in state["inexact"]],
    }


def _joined(pieces: Sequence[Mapping[str, Any]], name: str) -> Any:
    found = [piece[name] for piece in pieces]
    return None if found[0] is None else np.concatenate(found)
