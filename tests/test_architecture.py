"""The shape of the code: which way imports point, how long files are, what is never called."""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "ludus"
FILES = sorted(PACKAGE.rglob("*.py"))

GROUND = {"core", "version", "config", "seeds", "store", "process"}
AROUND = {*GROUND, "judge", "show", "session"}
SHARED = {*AROUND, "losses", "nn", "data", "envs"}
# What each room may import besides itself; a room that is not here is refused.
ALLOWED = {
    "core": set(),
    "version": set(),
    "config": {"core"},
    "seeds": {"core"},
    "store": {"core", "version", "config", "seeds"},
    "process": {"core", "version", "config", "seeds", "store"},
    "judge": GROUND,
    "show": {*GROUND, "judge"},
    "session": AROUND,
    "losses": {"core"},  # for its lazy names alone
    "nn": {*GROUND, "losses"},
    "data": GROUND,
    "envs": GROUND,
    "fit": {*AROUND, "losses", "nn", "data"},
    "supervised": {*SHARED, "fit"},
    "active": {*SHARED, "fit", "supervised"},
    "rl": SHARED,
    "games": SHARED,
    "arena": {*SHARED, "fit"},
    "text": {*SHARED, "fit", "arena"},
    "sweep": AROUND,
    "testing": SHARED,
    "cli": {*SHARED, "sweep", "testing"},
    "example_configs": {*SHARED, "supervised", "active", "rl", "games", "arena", "text"},
    "ludus": {
        *SHARED,
        "supervised",
        "active",
        "rl",
        "games",
        "arena",
        "text",
        "sweep",
        "cli",
        "example_configs",
    },
}
MODULE = re.compile(r"ludus(\.[a-z_]+)+")
BANNED = re.compile(
    r"\b(pickle|cloudpickle|dill|joblib)\b|torch\.load\(|allow_pickle=True"
    r"|yaml\.(load|unsafe_load)\(|(?<![\w.])(?<!def )eval\(|(?<![\w.])exec\(|(?<![\w.])hash\("
)


@functools.cache
def source(path: Path) -> str:
    return path.read_text()


@functools.cache
def nodes(path: Path) -> list[ast.AST]:
    """Return all nodes of a file, its module first; a file is parsed once for all rules."""
    return list(ast.walk(ast.parse(source(path))))


def room(module: str) -> str:
    words = module.split(".")
    return words[1] if len(words) > 1 and words[1] not in ("__init__", "__main__") else "ludus"


def imports(path: Path) -> set[str]:
    found = set()
    for node in nodes(path):
        assert not (isinstance(node, ast.ImportFrom) and node.level), "import by the full name"
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("ludus"):
            if node.module == "ludus":
                found |= {f"ludus.{alias.name}" for alias in node.names}
            else:
                found.add(node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("ludus")}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # A module that is named in a string is imported all the same, by whoever is given it.
            found |= {node.value} if is_module(node.value) else set()
    return found


def is_module(text: str) -> bool:
    """Return whether a text is the name of a module of ludus."""
    path = PACKAGE.joinpath(*text.split(".")[1:]) if MODULE.fullmatch(text) else None
    return path is not None and (path.is_dir() or path.with_suffix(".py").is_file())


def module_name(path: Path) -> str:
    return ".".join(["ludus", *path.relative_to(PACKAGE).with_suffix("").parts])


def strays(path: Path) -> list[str]:
    """Return what is wrong with the imports of a file, each in a sentence."""
    here = room(module_name(path))
    if here not in ALLOWED:
        return [f"{path}: say in ALLOWED what the room {here} may import"]
    allowed = {here, *ALLOWED[here]}
    try:
        found = sorted(imports(path))
    except AssertionError as error:
        return [f"{path}: {error}"]
    return [
        f"{path}: {here} must not import {module}"
        for module in found
        if room(module) not in allowed
    ]


def test_the_losses_import_nothing_else_of_ludus() -> None:
    files = [path for path in FILES if path.parent.name == "losses"]
    found = {module for path in files for module in imports(path)}
    assert {one for one in found if room(one) != "losses"} == {"ludus.core.lazy"}


def test_imports_point_one_way() -> None:
    told = [sentence for path in FILES for sentence in strays(path)]
    assert not told, "\n".join(told)


@pytest.mark.parametrize(
    ("place", "text", "told"),
    [
        ("core/sly.py", "import ludus.rl.agent", "core must not import ludus.rl.agent"),
        ("rl/sly.py", "from ludus.games import game", "rl must not import ludus.games"),
        ("attic/sly.py", "", "say in ALLOWED what the room attic may import"),
        ("rl/sly.py", "from ..core import loop", "import by the full name"),
    ],
)
def test_an_import_that_points_the_other_way_is_found(
    place: str, text: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / place
    path.parent.mkdir()
    path.write_text(text)
    monkeypatch.setattr("tests.test_architecture.PACKAGE", tmp_path)
    (sentence,) = strays(path)
    assert told in sentence


@pytest.mark.parametrize(
    "hidden",
    [
        "def f():\n    import ludus.rl.agent",
        "def f():\n    from ludus.rl import agent",
        "importlib.import_module('ludus.rl.agent')",
        "WORKER = 'ludus.rl.agent'",
        "if TYPE_CHECKING:\n    from ludus.rl.agent import Agent",
    ],
)
def test_no_import_hides_in_a_function_or_in_a_string(hidden: str, tmp_path: Path) -> None:
    path = tmp_path / "hiding.py"
    path.write_text(hidden)
    assert {room(module) for module in imports(path)} == {"rl"}


def limit_of(path: Path) -> int:
    """Return how many lines a file may have."""
    if path == PACKAGE / "core" / "loop.py":
        return 119
    # A trainer's class is whole in one place.
    return 450 if "trainer" in path.stem or path.parent.name == "trainers" else 300


def test_no_file_overgrows() -> None:
    lengths = {path: len(source(path).splitlines()) for path in FILES}
    long = [f"{path}: {lines}" for path, lines in lengths.items() if lines > limit_of(path)]
    assert not long, "\n".join(long)


@pytest.mark.covers("000-D14", "002-D7")
def test_nothing_that_runs_what_it_reads_is_ever_called() -> None:
    told = []
    for path in FILES:
        for number, line in enumerate(source(path).splitlines(), 1):
            code = line.split("#")[0]
            is_text = code.lstrip().startswith(('"', "'"))
            if not is_text and BANNED.search(code):
                told.append(f"{path}:{number}: {line.strip()}")
    assert not told, "\n".join(told)


def test_few_functions_are_long() -> None:
    long = []
    for path in FILES:
        for node in nodes(path):
            if isinstance(node, ast.FunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > 60:
                    long.append(f"{path.name}:{node.name} {lines}")
    assert long == []


def test_there_is_no_room_for_odds_and_ends() -> None:
    names = {path.stem for path in FILES} | {path.parent.name for path in FILES}
    assert not names & {"utils", "util", "common", "helpers", "misc"}


def test_every_file_opens_with_a_sentence() -> None:
    told = []
    for path in FILES:
        module = nodes(path)[0]
        assert isinstance(module, ast.Module)
        doc = ast.get_docstring(module)
        if not doc:
            told.append(f"{path} has no docstring")
        elif not doc.split("\n\n")[0].rstrip().endswith((".", ":", "!")):
            told.append(f"{path}: {doc.splitlines()[0]}")
    assert not told, "\n".join(told)


def test_nothing_is_printed_past_the_one_door_to_the_terminal() -> None:
    told = []
    for path in FILES:
        calls = [node for node in nodes(path) if isinstance(node, ast.Call)]
        named = [call for call in calls if isinstance(call.func, ast.Name)]
        told += [f"{path}:{call.lineno}" for call in named if call.func.id == "print" and call.args]
    assert not told, "\n".join(told)


def test_no_private_function_is_left_that_nothing_calls() -> None:
    words = Counter(word for path in FILES for word in re.findall(r"\w+", source(path)))
    unused = []
    for path in FILES:
        for node in nodes(path):
            is_private = isinstance(node, ast.FunctionDef | ast.ClassDef) and (
                node.name.startswith("_") and not node.name.startswith("__")
            )
            if is_private and words[node.name] == 1:
                unused.append(node.name)
    # Asked for by torch's dispatcher, by TorchRL's envs, and by pydantic.
    asked = {"_should_skip_dynamo", "_set_num_iterations", "_reset", "_set_seed"}
    assert set(unused) <= asked


def test_few_parameters_have_no_type() -> None:
    bare = []
    for path in FILES:
        for node in nodes(path):
            if isinstance(node, ast.FunctionDef):
                for argument in [*node.args.args, *node.args.kwonlyargs, *node.args.posonlyargs]:
                    if (
                        isinstance(argument.annotation, ast.Name)
                        and argument.annotation.id == "Any"
                    ):
                        bare.append(f"{module_name(path)}.{node.name}: {argument.arg}")
    # What is read from outside is an `object` until it is checked; Any hides mistakes at a seam.
    assert len(bare) <= 30, "\n".join(bare)


def test_an_import_that_is_relative_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "sly.py"
    path.write_text("from ..rl import agent\n")
    with pytest.raises(AssertionError, match="import by the full name"):
        imports(path)
