"""Counters of a run: six that all families share, and those that a family declares."""

from __future__ import annotations

from collections.abc import Iterable

from ludus.core.errors import PlanError, nearest

SHARED = ("env_steps", "opt_steps", "epoch", "iteration", "examples", "tokens")
_OWNERS: dict[str, list[str]] = {}
"""Modules that declared each counter; families of ludus may share one that means the same."""


class Counters(dict[str, int]):
    """Counters of one run, by name; an undeclared name is a PlanError."""

    def __missing__(self, name: str) -> int:
        check(name, self)
        raise AssertionError  # pragma: no cover - a missing name is unknown


def declare(names: Iterable[str], room: str) -> None:
    """Declare counters that only the trainers defined in this package or module have."""
    for name, owners in list(_OWNERS.items()):
        _OWNERS[name] = [owner for owner in owners if owner != room]
        if not _OWNERS[name]:
            del _OWNERS[name]
    for name in names:
        _OWNERS.setdefault(name, []).append(room)


def owners(name: str) -> list[str]:
    """Return the packages or modules that declared a counter; `ludus` for a shared one, empty if unknown."""
    return ["ludus"] if name in SHARED else list(_OWNERS.get(name, ()))


def known() -> tuple[str, ...]:
    """Return every declared counter."""
    return *SHARED, *_OWNERS


def of(trainer: type) -> tuple[str, ...]:
    """Return the counters of this class's runs: the shared ones and those its modules declare."""
    modules = [f"{cls.__module__}." for cls in trainer.__mro__]
    own = [
        name
        for name, families in _OWNERS.items()
        if any(module.startswith(f"{room}.") for module in modules for room in families)
    ]
    return *SHARED, *own


def check(name: str, among: Iterable[str] | None = None) -> None:
    """Raise PlanError, with the nearest name, unless this counter is declared."""
    names = known() if among is None else tuple(among)
    if name in names:
        return
    if known_to := owners(name):
        raise PlanError(
            f"the counter '{name}' is that of {' and '.join(known_to)}'s trainers; declare one of your own"
            " under another name: ludus.declare(__name__, counters=[...])"
        )
    raise PlanError(
        f"no counter is named '{name}'.{nearest(name, names)} One of your own is declared with"
        " ludus.declare(__name__, counters=[...])"
    )
