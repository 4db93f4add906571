"""Batches of a user's own DataLoader, resumable at any position."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
)

from ludus.core import states
from ludus.core.errors import LudusError
from ludus.core.object_walker import digest_of
from ludus.core.repeated import Repeated
from ludus.data.batches.file_data import FileDataset
from ludus.data.batches.seeded_loader import answers, is_same, remaining, sentence_of
from ludus.data.upload import UploadQueue, to_device
from ludus.seeds import derive, forked

_UPLOADED_AHEAD = 2
"""The number of batches on their way to a CUDA device while it computes."""


class LoaderBatches:
    """Batches of a user's DataLoader.

    A loader over a map-style data set in sequential or shuffled order resumes at its exact position. A
    stateful loader (`state_dict`) saves and restores its own state. Any other is replayed from the start of
    the epoch to the position, which is exact only if it is deterministic, and that is reported.
    """

    def __init__(self, loader: object, *, seed: int, device: torch.device) -> None:
        self._loader: Any = loader
        self._seed = seed
        self._device = device
        self.epoch = -1
        self.position = 0
        self._iterator: Iterator[Any] | None = None
        self._ahead: list[Any] = []
        self._is_over = False
        self._state_before_ahead: Any = None
        self._is_stateful = hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")
        self._is_indexed = not self._is_stateful and is_indexed(loader)
        dataset = getattr(loader, "dataset", None)
        self._files = dataset if isinstance(dataset, FileDataset) else None
        is_ahead = self._is_indexed and device.type == "cuda"
        self._uploads = UploadQueue(device) if is_ahead else None
        # With worker processes, only their copies of the data set can have changed.
        self._repeated = Repeated(self._ask if not getattr(loader, "num_workers", 0) else None)

    @property
    def is_repeatable(self) -> bool:
        """Whether reading the first batch consumes nothing."""
        return self._is_indexed

    def start(self, epoch: int) -> None:
        """Begin the epoch at its first batch."""
        self.epoch, self.position, self._is_over = epoch, 0, False
        self._drop_ahead()
        self._repeated.look()
        self._iterator = self._iterate(0)

    def close(self) -> None:
        """Shut the worker processes down; an open epoch cannot be continued."""
        iterator, self._iterator = self._iterator, None
        # After an error its destructor waits five seconds for each worker; this call does not.
        shut_down = getattr(iterator, "_shutdown_workers", None)
        if shut_down is not None:
            shut_down()
        self._drop_ahead()

    def _drop_ahead(self) -> None:
        self._ahead = []
        if self._uploads is not None:
            self._uploads.clear()

    def _iterate(self, position: int) -> Iterator[Any]:
        if self._is_indexed:
            with _garbage_stays():
                return iter(remaining(self._loader, self._seed, self.epoch, position))
        key = derive(self._seed, "order", self.epoch)
        if not self._is_stateful:
            for loader_generator in _generators(self._loader):
                loader_generator.manual_seed(key)
        with forked(key), _garbage_stays():
            return iter(self._loader)

    def next(self) -> Any:
        """Return the next batch, on the device."""
        try:
            batch = self._next() if self._uploads is None else self._next_uploaded(self._uploads)
        except StopIteration:
            raise LudusError(
                f"the {self._name()} says that an epoch has {self.length()} batches, but epoch"
                f" {self.epoch} ended after {self.position}; correct its length"
            ) from None
        self.position += 1
        if self._files is None:
            return batch
        inputs, *rest = batch
        return [self._files.finished(inputs), *rest]

    def _next(self) -> Any:
        batch = self._ahead.pop() if self._ahead else self._draw(self.position)
        return to_device(batch, self._device)

    def _next_uploaded(self, uploads: UploadQueue) -> Any:
        """Return the next batch, and copy those after it while the device computes with it."""
        length = self.length()
        while len(uploads) <= _UPLOADED_AHEAD:
            position = self.position + len(uploads)
            if length is not None and position >= length and len(uploads):
                break
            uploads.put(self._draw(position))
        return uploads.take()

    def _draw(self, position: int) -> Any:
        assert self._iterator is not None
        # Augmentation draws from the global generators, which belong to the run.
        batch, refusal = None, None
        try:
            with forked(derive(self._seed, f"batch/{self.epoch}", position)):
                batch = next(self._iterator)
        except (LudusError, RuntimeError) as error:
            refusal = sentence_of(error)
        if refusal is not None:
            # Raised here, because the traceback of the first error would keep the workers alive.
            raise refusal
        return batch if self._files is None else self._files.received(batch)

    def length(self) -> int | None:
        try:
            return len(self._loader)
        except (TypeError, NotImplementedError):
            return None

    def has_ended(self) -> bool:
        """Return whether the epoch is over; without a length this draws one batch ahead."""
        if not self._is_over and not self._ahead:
            length = self.length()
            if length is None:
                self._look_ahead()
            elif self.position >= length:
                self._is_over = True
                if self._is_stateful and self._iterator is not None:
                    # Only a stateful loader that was exhausted starts a new epoch next time.
                    with forked(derive(self._seed, "end", self.epoch)):
                        next(self._iterator, None)
            if self._is_over and self.position == 0:
                raise LudusError(
                    f"the {self._name()} gave no batch in epoch {self.epoch}; it must hold one at"
                    " least, every time it is gone through"
                )
        return self._is_over

    def _look_ahead(self) -> None:
        if self._is_stateful:
            # Its state after this draw would skip the batch that waits here.
            self._state_before_ahead = self._loader.state_dict()
        try:
            self._ahead.append(self._draw(self.position))
        except StopIteration:
            self._is_over = True

    def ask_twice(self) -> str | None:
        """Return the problem if a map-style data set, read twice, returns different examples."""
        if not self._is_indexed:
            return None
        first, second = answers(self._loader, self._seed, times=2)
        if is_same(first, second):
            self._repeated.begin(digest_of(first))
            return None
        return (
            f"the {self._name()}, asked twice for the same examples, gave different ones: it keeps a"
            " generator or a count of its own; draw from the global generators of torch, NumPy or"
            " Python, which are reseeded for each example"
        )

    def _ask(self) -> Any:
        return answers(self._loader, self._seed, times=1)[0]

    def digest(self) -> str | None:
        """Return a digest of some examples, spread over the data set; None if there is none."""
        found = self._repeated.digest
        return (
            found
            if found is None or self._files is None
            else digest_of([found, self._files.identity()])
        )

    def news(self) -> Sequence[str]:
        """Return the problems found with the files of the data since the last call."""
        return () if self._files is None else self._files.news()

    def changed_later(self) -> Sequence[str]:
        """Return the problem if a data set returned different examples later in the run."""
        if not self._repeated.has_changed:
            return ()
        return (
            f"the {self._name()}, asked for the same examples in a later epoch, gave different ones: it"
            " keeps a generator or a count of its own, which is not saved",
        )

    def inexact_because(self) -> Sequence[str]:
        if self._is_indexed or self._is_stateful:
            return self.changed_later()
        return (
            f"the {self._name()} cannot be taken up at a position; it is run again from the start of"
            " the epoch, which is exact only if it repeats itself",
        )

    def _name(self) -> str:
        return f"loader over {type(getattr(self._loader, 'dataset', self._loader)).__name__}"

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {"epoch": self.epoch, "position": self.position}
        if self._is_stateful and self.epoch >= 0:
            is_ahead = bool(self._ahead)
            state["loader"] = self._state_before_ahead if is_ahead else self._loader.state_dict()
            state["is_over"] = self._is_over
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the position."""
        states.check_keys(state, "epoch", "position", optional=("loader", "is_over"))
        epoch = states.whole(state, "epoch", at_least=-1)
        position = states.whole(state, "position", at_most=self.length() if epoch >= 0 else 0)
        has_state = self._is_stateful and epoch >= 0
        states.check_keys(state, "epoch", "position", *(("loader", "is_over") if has_state else ()))
        is_over = states.flag(state, "is_over") if has_state else False
        self.epoch, self.position = epoch, position
        self._drop_ahead()
        self._iterator, self._is_over = None, is_over
        if self.epoch < 0:
            return
        if self._is_stateful:
            self._loader.load_state_dict(state["loader"])
            if self._is_over:
                # Iterating now would begin an epoch that `start` begins as well.
                return
        self._iterator = self._iterate(self.position)
        if not self._is_indexed and not self._is_stateful:
            try:
                for position in range(self.position):
                    self._draw(position)
            except StopIteration:
                raise LudusError(
                    f"the {self._name()} ends before batch {self.position} of epoch {self.epoch},"
                    " where the run stood; give it the data it had"
                ) from None


def is_indexed(loader: object) -> bool:
    """Return whether the order of this loader can be computed from a seed."""
    return (
        isinstance(loader, DataLoader)
        # A loader with its own __iter__ is left alone.
        and type(loader).__iter__ is DataLoader.__iter__
        and not isinstance(loader.dataset, IterableDataset)
        and loader.batch_size is not None
        and type(loader.sampler) in (RandomSampler, SequentialSampler)
        and not getattr(loader.sampler, "replacement", False)
        and len(loader.sampler) == len(loader.dataset)  # type: ignore[arg-type]
    )


def _generators(loader: object) -> Iterator[torch.Generator]:
    """Yield the generators that a loader and its samplers were given."""
    batch_sampler = getattr(loader, "batch_sampler", None)
    owners = [loader, getattr(loader, "sampler", None), batch_sampler]
    for owner in [*owners, getattr(batch_sampler, "sampler", None)]:
        generator = getattr(owner, "generator", None)
        if isinstance(generator, torch.Generator):
            yield generator


@contextlib.contextmanager
def _garbage_stays() -> Iterator[None]:
    """Keep garbage collection in forked workers away from what they inherit.

    A worker that frees a tensor on a CUDA device is aborted, as a forked process may not call CUDA.
    """
    if not torch.cuda.is_initialized():
        yield
    elif gc.get_freeze_count():  # frozen by the script: unfreezing would undo that
        gc.collect()
        yield
    else:
        gc.freeze()
        try:
            yield
        finally:
            gc.unfreeze()
