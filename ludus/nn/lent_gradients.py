"""The gradients of parameters, lent for one step to an optimizer that does not know flat vectors."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from torch import nn

from ludus.core.errors import LudusError
from ludus.nn.flat import FlatParameters


class LentGradients:
    """Hides the gradients of parameters that take no step, and restores all gradients afterwards."""

    def __init__(
        self,
        flat: FlatParameters,
        named: Mapping[str, nn.Parameter],
        moving: Collection[str],
        who: str,
    ) -> None:
        self._gradients, self._weights = flat.by_name(flat.gradients), flat.by_name(flat.vectors)
        self._named, self._moving, self._who = named, moving, who

    def __enter__(self) -> None:
        for name, one in self._named.items():
            one.grad = self._gradients[name] if name in self._moving else None

    def __exit__(self, *error: object) -> None:
        for name, one in self._named.items():
            one.grad = self._gradients[name]
            if one.data_ptr() != self._weights[name].data_ptr():
                raise LudusError(
                    f"the optimizer {self._who} put another tensor in the place of the parameter '{name}';"
                    " let it change parameters in place"
                )
