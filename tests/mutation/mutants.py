"""Draw small changes of the source at random places: an operator, a number, a condition, a loop."""

from __future__ import annotations

import ast
import difflib
import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

_FAMILIES = ("ReplaceBinaryOperator", "ReplaceComparisonOperator", "ReplaceUnaryOperator")
_OTHERS = (
    "AddNot", "NumberReplacer", "ReplaceAndWithOr", "ReplaceOrWithAnd", "ReplaceTrueWithFalse",
    "ReplaceFalseWithTrue", "ReplaceBreakWithContinue", "ReplaceContinueWithBreak",
    "ZeroIterationForLoop", "RemoveDecorator",
)  # fmt: skip


class Mutant(NamedTuple):
    """One change of one file."""

    path: Path
    line: int
    before: str
    after: str
    source: str
    """The whole file, changed."""


def draw(folder: Path, count: int, chance: random.Random) -> Iterator[Mutant]:
    """Yield this many changes at different places of a folder's files."""
    places = [(path, *place) for path in sorted(folder.glob("*.py")) for place in _places(path)]
    chance.shuffle(places)
    found = 0
    for path, line, ways in places:
        if found == count:
            return
        name, occurrence = chance.choice(ways)
        mutant = _mutant(path, line, name, occurrence)
        if mutant is not None:
            found += 1
            yield mutant


def _places(path: Path) -> list[tuple[int, list[tuple[str, int]]]]:
    """Return each place that can be changed: its line, and the ways to change it."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator, operator_names

    nodes = list(ast_nodes(get_ast(path.read_text())))
    places: dict[tuple[int, int], list[tuple[str, int]]] = defaultdict(list)
    for name in operator_names():
        short = name.partition("/")[2]
        if not (short.startswith(_FAMILIES) or short in _OTHERS):
            continue
        operator: Any = get_operator(name)()
        positions = (start for node in nodes for start, _ in operator.mutation_positions(node))
        for occurrence, start in enumerate(positions):
            places[start].append((name, occurrence))
    return [(line, ways) for (line, _), ways in sorted(places.items())]


def _mutant(path: Path, line: int, name: str, occurrence: int) -> Mutant | None:
    """Return the change, or None where it changes nothing that runs."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    original = path.read_text()
    source = mutate_code(original, get_operator(name)(), occurrence)
    if source is None:
        return None
    try:
        if _what_runs(source) == _what_runs(original):
            return None
    except SyntaxError:
        return None
    rows = [
        row
        for row in difflib.unified_diff(original.splitlines(), source.splitlines(), n=0)
        if row.startswith(("-", "+")) and not row.startswith(("---", "+++"))
    ]
    before = " ".join(row[1:].strip() for row in rows if row.startswith("-"))
    after = " ".join(row[1:].strip() for row in rows if row.startswith("+"))
    return Mutant(path, line, before, after, source)


class _WithoutHints(ast.NodeTransformer):
    """Leave out type hints, which only configs read."""

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        bases = [ast.unparse(base) for base in node.bases]
        if node.name.endswith("Config") or any(base.endswith("Config") for base in bases):
            return node
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)


def _what_runs(source: str) -> str:
    return ast.dump(_WithoutHints().visit(ast.parse(source)))
