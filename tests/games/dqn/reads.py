"""Count the numbers that the host reads of tensors, on the CPU as on a GPU, where it would wait for them."""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

_READS = {"aten::_local_scalar_dense", "aten::nonzero", "aten::is_nonzero", "aten::equal"}


class Reads(TorchDispatchMode):
    """While it is active, counts the operations for which the host would wait."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func._schema.name in _READS
        return func(*args, **(kwargs or {}))
