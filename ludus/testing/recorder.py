"""A callback that records every hook call, so that two runs can be compared event by event."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ludus.core.plan import Repeat, hook_names, walk_nodes
from ludus.core.run import Run
from ludus.core.trainer import Trainer


class WalkRecorder:
    """Records every hook of a plan, with the counters at that moment; the record is its state."""

    def __init__(self, plan: Repeat) -> None:
        self.heard: list[str] = []
        for node in walk_nodes(plan):
            for name in hook_names(node):
                setattr(self, name, self._listener(name))

    def _listener(self, name: str) -> Callable[[Run], None]:
        def hear(run: Run) -> None:
            counters = " ".join(f"{key}={value}" for key, value in run.counters.items() if value)
            self.heard.append(f"{name} {counters}".strip())

        return hear

    def state_dict(self) -> dict[str, Any]:
        return {"heard": list(self.heard)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.heard = list(state["heard"])


def listen(trainer: Trainer) -> None:
    """Add a Recorder as soon as the trainer has a plan, which is after `prepare`."""
    prepare = trainer.prepare

    def prepare_and_listen(*, max_steps: int | None) -> None:
        prepare(max_steps=max_steps)
        trainer.add(WalkRecorder(trainer.plan()), name="recorder")

    trainer.prepare = prepare_and_listen  # type: ignore[method-assign]
