"""The training loop: epochs of steps over the data, which a plan may enter repeatedly."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

from ludus.core import Repeat, Run, Stage, Stateful, states
from ludus.core.intervals import Work, every, is_due_or_last
from ludus.core.plan import counted
from ludus.data.batches.memory import Batches
from ludus.nn.schedules import Schedule

EPOCH = "epoch"
"""The name of the loop; `run.leave(EPOCH, why)` ends it, and the plan continues after it."""


class Fit:
    """Epochs of steps: a subtree of a plan.

    epoch x max_epochs
      step x batches         as many as the data has when an epoch starts
        train_step
      ...                    `then`
      validate               if given

    Each time the loop is entered, for example in the next round of active learning, it restarts: the
    schedule is reset for the batches that the data has now, `max_steps` counts from 0, and every part
    passed to `renew` is reset to its state then: early stopping and the best model, and, if each round
    trains from scratch, the model and the optimizer too.

    A plan that enters it more than once lists it among its parts: its state holds the entry point.
    """

    def __init__(
        self,
        data: Batches,
        *,
        train_step: Callable[[Any, int], Mapping[str, Any] | None],
        schedule: Callable[[int | None], Schedule],
        max_epochs: int,
        max_steps: int | None,
        then: Sequence[Stage],
        validate: Work | None = None,
        evaluate_every: int = 0,
        on_enter: Callable[[], None] | None = None,
    ) -> None:
        """`train_step` takes a batch and its index within the epoch.

        `schedule` makes the schedule of an entry from the number of batches per epoch, if known.
        `validate` follows every so many epochs of an entry, and its last; 0 means never.
        `on_enter` drops the unfinished work of a loop that was left in the middle of an epoch.
        """
        self._data = data
        self._of_batch = train_step
        self._make_schedule = schedule
        self._max_epochs = max_epochs
        self._max_steps = max_steps
        self._evaluate_every = evaluate_every
        self._then = tuple(then)
        if validate is not None:
            note = every(evaluate_every, "epoch", ", and after the last")
            stage = Stage(name="validate", work=validate, when=self._is_validated, note=note)
            self._then = (*self._then, stage)
        self._renewed: list[tuple[Stateful, dict[str, Any]]] = []
        self._on_enter = on_enter
        self.begun_at = 0
        """The opt_steps when the loop was entered."""
        self.num_batches = data.length()
        """Number of batches per epoch then; None if the data does not say."""
        self.schedule = schedule(self.num_batches)

    def renew(self, *parts: Stateful) -> None:
        """Reset these parts to their current state each time the loop is entered."""
        self._renewed += [(part, deepcopy(dict(part.state_dict()))) for part in parts]

    def renew_only(self, *parts: Stateful) -> None:
        """Reset these parts, and no others, to their current state each time the loop is entered.

        A part that was already renewed keeps the state of the first call.
        """
        known = {id(part): state for part, state in self._renewed}
        self._renewed = []
        for part in parts:
            if id(part) in known:
                self._renewed.append((part, known[id(part)]))
            else:
                self.renew(part)

    def loop(self) -> Repeat:
        """Return the subtree; a plan holds it once."""
        length = self._data.length()
        step = Repeat(
            name="step",
            times=None if length is None else lambda run: self._data.length() or 0,
            until=self._is_epoch_over,
            body=(Stage(name="train_step", work=self._train_step),),
            note=counted(length, "batch", "batches") if length else "until the data ends",
        )
        return Repeat(
            name=EPOCH,
            times=self._max_epochs,
            until=self.is_long_enough,
            counter="epoch",
            body=(step, *self._then),
        )

    def num_steps(self, run: Run) -> int:
        """Return the number of optimisation steps since the loop was entered."""
        is_new = self._data.epoch != run.counters["epoch"] and run.round(EPOCH) == 0
        return 0 if is_new else run.counters["opt_steps"] - self.begun_at

    def learning_rate(self, run: Run) -> float:
        """Return the learning rate of the next step."""
        return self.schedule(run.counters["opt_steps"] - self.begun_at)

    def is_long_enough(self, run: Run) -> bool:
        """Return whether `max_steps` were made since the loop was entered."""
        return self._max_steps is not None and self.num_steps(run) >= self._max_steps

    def _is_validated(self, run: Run) -> bool:
        count = run.round(EPOCH) + 1
        is_last = count >= self._max_epochs or self.is_long_enough(run)
        return is_due_or_last(count, self._evaluate_every, is_last=is_last)

    def _is_epoch_over(self, run: Run) -> bool:
        is_started = self._data.epoch == run.counters["epoch"]
        return self.is_long_enough(run) or (is_started and self._data.has_ended())

    def _train_step(self, run: Run) -> Mapping[str, Any] | None:
        data = self._data
        if data.epoch != run.counters["epoch"]:
            if run.round(EPOCH) == 0:
                self._enter(run)
            data.start(run.counters["epoch"])
        batch = data.next()
        for note in data.news():
            run.tell(note, event="data")
        return self._of_batch(batch, data.position - 1)

    def _enter(self, run: Run) -> None:
        """Restart the loop; the result is saved at the boundary before the first step."""
        self.begun_at, self.num_batches = run.counters["opt_steps"], self._data.length()
        self.schedule = self._make_schedule(self.num_batches)
        for part, state in self._renewed:
            part.load_state_dict(deepcopy(state))
        if self._on_enter is not None:
            self._on_enter()

    def state_dict(self) -> dict[str, Any]:
        return {"begun_at": self.begun_at, "num_batches": self.num_batches}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        states.check_keys(state, "begun_at", "num_batches")
        begun_at = states.whole(state, "begun_at")
        num_batches = None if state["num_batches"] is None else states.whole(state, "num_batches")
        self.begun_at, self.num_batches = begun_at, num_batches
        self.schedule = self._make_schedule(num_batches)
