"""The space of a sweep: which keys of a config vary, over which values, and under which conditions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ludus.config.overrides import MISSING, value_at
from ludus.sweep.variables import Label, Suggests, Value, Varied


class Space:
    """The keys that vary, by their paths, each after those that its conditions name."""

    def __init__(self, variables: Mapping[str, Varied]) -> None:
        self.variables = dict(variables)

    def draw(self, trial: Suggests) -> dict[str, Value]:
        """Return a point: the value of each key that varies under the values before it."""
        point: dict[str, Value] = {}
        for path, varied in self.variables.items():
            if self.is_active(path, point):
                point[path] = varied.draw(path, trial)
        return point

    def is_active(self, path: str, point: Mapping[str, Value]) -> bool:
        """Return whether a key varies under these values of the keys before it."""
        return all(
            is_among(value_in(point, other), wanted)
            for other, wanted in (self.variables[path].when or {}).items()
        )

    def points(self) -> Iterator[dict[str, Value]]:
        """Yield every point of a space of countable values, the last key varying fastest."""
        yield from self._points(list(self.variables), {})

    def _points(self, paths: Sequence[str], point: dict[str, Value]) -> Iterator[dict[str, Value]]:
        if not paths:
            yield dict(point)
            return
        first, *rest = paths
        if not self.is_active(first, point):
            yield from self._points(rest, point)
            return
        for value in self.variables[first].grid() or ():
            yield from self._points(rest, {**point, first: value})

    def labels(self, point: Mapping[str, Value]) -> dict[str, Label]:
        """Return what stands for the values of a point in Optuna."""
        return {path: self.variables[path].label(value) for path, value in point.items()}


def value_in(point: Mapping[str, Value], path: str) -> Value:
    """Return the value of a path in a point: that of a key, or one inside a section that was chosen."""
    if path in point:
        return point[path]
    above = [key for key in point if path.startswith(f"{key}.")]
    if not above:
        return MISSING
    key = max(above, key=len)
    return value_at(point[key], path[len(key) + 1 :])


def is_among(value: Value, values: Sequence[Value]) -> bool:
    """Return whether a value is one of these; true is not 1, as in a file."""
    return any(type(one) is type(value) and one == value for one in values)
