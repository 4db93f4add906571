"""The saved state of a vector env, cut up for workers and put together again.

The state of N envs is the same whatever the number of workers that step them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def split(state: Mapping[str, Any], first: int, stop: int) -> dict[str, Any]:
    """Return the state of the envs from `first` to before `stop`, with no reasons."""
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


def join(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the state of all envs from those of their slices, in order."""
    journals = [state["journal"] for state in states]
    return {
        "episodes": _joined(states, "episodes"),
        "journal": {name: _joined(journals, name) for name in ("lengths", "actions", "marks")},
        "states": [one for state in states for one in state["states"]],
        "obs": _joined(states, "obs"),
        "masks": _joined(states, "masks"),
        "cut": _joined(states, "cut"),
        "inexact": [reason for state in states for reason in state["inexact"]],
    }


def _joined(states: Sequence[Mapping[str, Any]], name: str) -> Any:
    pieces = [state[name] for state in states]
    return None if pieces[0] is None else np.concatenate(pieces)
