"""Prioritised experience replay: transitions are sampled in proportion to their TD error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ludus.config.sections import StrictConfig
from ludus.core import states
from ludus.core.errors import Diverged
from ludus.data.replay.ring import Batch, ReplayBuffer
from ludus.data.replay.row_layout import RowLayout
from ludus.data.replay.sum_tree import SumTree
from ludus.data.upload import upload


class PerConfig(StrictConfig):
    """The priorities of transitions, and the correction of the sampling bias by importance weights."""

    alpha: float
    """The priority exponent: 0 samples uniformly, 1 in proportion to the error."""
    beta: float
    """The initial importance-sampling exponent: 0 corrects none of the bias, 1 all of it."""
    eps: float
    """Added to every error, so that a transition with error 0 can still be sampled."""
    normalise: Literal["all", "batch"]
    """Normalise weights by the largest of all transitions held, or of the batch, which becomes 1."""

    def problems(self) -> Iterator[str]:
        """Yield a problem for each number out of bounds."""
        if not 0 <= self.alpha <= 1:
            yield f"'alpha' is {self.alpha}; it is a number from 0 to 1, often 0.6"
        if not 0 <= self.beta <= 1:
            yield f"'beta' is {self.beta}; it is a number from 0 to 1, often 0.4"
        if not self.eps > 0:
            yield f"'eps' is {self.eps}; it must be above 0, for example 1.0e-8"


class PrioritisedReplay(ReplayBuffer):
    """A ring whose transitions are sampled in proportion to (|error| + eps) ** alpha.

    A new transition gets the largest priority so far, so that each is soon sampled once.
    """

    _more_names = ("priorities", "largest")

    def __init__(
        self,
        layout: RowLayout,
        capacity: int,
        config: PerConfig,
        *,
        seed: int,
        name: str = "replay",
        device: torch.device = torch.device("cpu"),  # noqa: B008 - a device is immutable
        batch_size: int | None = None,
    ) -> None:
        super().__init__(
            layout, capacity, seed=seed, name=name, device=device, batch_size=batch_size
        )
        self.config = config
        self._tree = SumTree(capacity)
        self._largest = 1.0
        self._num_known = 0
        """The number of transitions pushed that are in the tree; pushing itself does not update it."""

    def sample(self, batch_size: int | None = None, beta: float | None = None) -> Batch:
        """Return transitions sampled by priority, stratified over B equal parts of the sum, with weights.

        `beta` is the current value of its schedule; without it, the config's. The importance weight is (N
        P(i)) ** -beta, divided by the largest. Rows are in memory that the next sample overwrites.
        """
        out = self._outs.get(batch_size) or self._out(batch_size)  # type: ignore[arg-type]
        batch_size = len(out.indices)
        if not self.size:
            raise self._nothing_to_draw()
        self._learn_of_new()
        beta = self.config.beta if beta is None else beta
        tree = self._tree
        drawn = self._generator.random(batch_size)
        indices = tree.find((np.arange(batch_size) + drawn) * (tree.total / batch_size))
        priorities = tree.leaves[indices]
        # N and the sum cancel between a weight and the largest one, which belongs to the smallest priority.
        least = tree.minimum if self.config.normalise == "all" else priorities.min()
        weights = torch.from_numpy(((least / priorities) ** beta).astype(np.float32))
        self._gather(indices, out)
        return Batch(out.batch.rows, out.batch.images, indices, upload(weights, self.device))

    def update_priorities(self, indices: NDArray[np.int64], td_errors: Tensor | Any) -> None:
        """Set the priorities of a batch's transitions, by `batch.indices`, from their TD errors.

        Call it before the next push, which may overwrite these transitions.
        """
        self._learn_of_new()
        if isinstance(td_errors, Tensor):
            td_errors = td_errors.detach().cpu().numpy()
        errors = np.abs(np.asarray(td_errors, dtype=np.float64))
        if not errors.max(initial=0.0) < np.inf:
            raise Diverged(
                f"a TD error given to '{self.name}' is {errors[~(errors < np.inf)][0]}; the loss has"
                " diverged: try a lower learning rate"
            )
        priorities = (errors + self.config.eps) ** self.config.alpha
        self._tree.set(indices, priorities)
        self._largest = max(self._largest, float(priorities.max(initial=0.0)))

    def _learn_of_new(self) -> None:
        """Add the transitions pushed since to the tree: `_largest` has not changed in the meantime."""
        count = min(self.total - self._num_known, self.capacity)
        if count:
            places = np.arange(self.total - count, self.total) % self.capacity
            self._tree.set(places, np.full(count, self._largest))
            self._num_known = self.total

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the ring, and all priorities, as a view of them."""
        self._learn_of_new()
        priorities = torch.from_numpy(self._tree.leaves[: self.size])
        return super().state_dict() | {"priorities": priorities, "largest": self._largest}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Copy everything back in place; the tree is rebuilt from its leaves."""
        names = ("total", "priorities", "largest")
        states.check_keys(state, *names, optional=("capacity", "transitions", "generator"))
        size = min(states.whole(state, "total"), self.capacity)
        own = torch.zeros(0, dtype=torch.float64)
        saved = states.shaped(state, "priorities", own, (size,), finite=True)
        states.between("priorities", saved, low=0)
        largest = states.number(state, "largest", at_least=0)
        super().load_state_dict(state)
        self._tree.rebuild(saved.numpy())
        self._largest = largest
        self._num_known = self.total
