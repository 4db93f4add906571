"""Check whether a kernel can inline a function of an elementwise game, without importing Triton."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from ludus.games import elementwise

_ALLOWED = "use the operations of ludus.games.elementwise, global numbers and such functions"
_VARIADIC = 0x04 | 0x08
"""The flags of a function's code for *args and **kwargs."""


def why_not_inlined(
    function: Callable[..., Any], callers: tuple[Callable[..., Any], ...] = ()
) -> str | None:
    """Return why a kernel cannot inline a function, with the remedy; None where it can."""
    if not isinstance(function, types.FunctionType):
        return f"{function!r} is not a function of a module; write it with def"
    name, code = f"{function.__module__}.{function.__name__}", function.__code__
    if code.co_freevars:
        return f"{name} uses '{code.co_freevars[0]}' of the function around it; make it a global number"
    if function.__defaults__ or function.__kwdefaults__ or code.co_flags & _VARIADIC:
        return (
            f"{name} has parameters with defaults or any number of them; name each, without default"
        )
    if function in callers:
        return f"{name} calls itself; write it out"
    for used in code.co_names:
        value = function.__globals__.get(used)
        is_known = any(value is operation for operation in elementwise.OPERATIONS)
        if is_known or isinstance(value, int | float):
            continue
        if not isinstance(value, types.FunctionType):
            return f"{name} uses '{used}', which a kernel does not know; {_ALLOWED}"
        reason = why_not_inlined(value, (*callers, function))
        if reason is not None:
            return reason
    return None
