"""What is imported from ludus and from its rooms costs nothing until it is used, and has its type."""

from __future__ import annotations

import ast
import importlib
import os
import pkgutil
import re
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import ludus
from ludus.config.families import listed
from ludus.config.registry import find
from ludus.core.lazy import imported_for_checkers

ROOT = Path(__file__).parents[1]
PACKAGES = ["ludus"] + [
    f"ludus.{path.parent.name}"
    for path in sorted((ROOT / "ludus").glob("*/__init__.py"))
    if "lazy_names(" in path.read_text()
]


def source(package: str) -> Path:
    return ROOT.joinpath(*package.split("."), "__init__.py")


def parsed_names(text: str) -> dict[str, str]:
    """Return the module of each name imported for checkers, by Python's own parser."""
    return {
        alias.name: node.module
        for block in ast.parse(text).body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.module is not None
        for alias in node.names
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_the_public_names_are_those_that_checkers_see(package: str) -> None:
    module, text = importlib.import_module(package), source(package).read_text()
    own = ["__version__"] if package == "ludus" else []
    names = imported_for_checkers(text)
    assert sorted(module.__all__) == sorted([*names, *own])
    assert names == parsed_names(text)  # the pattern reads what Python does
    assert sorted(dir(module)) == sorted(module.__all__)
    # Checkers take a name for public only if it is imported as itself.
    assert all(f"{name} as {name}" in text for name in names)
    # A submodule of the same name would hide what is meant as soon as it is imported.
    submodules = {found.name for found in pkgutil.iter_modules([str(source(package).parent)])}
    assert not submodules & {*names}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_name_is_there_and_another_is_an_error(package: str) -> None:
    module = importlib.import_module(package)
    for name in module.__all__:
        assert getattr(module, name) is not None
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'Jugde'"):
        _ = module.Jugde


def test_the_example_of_every_kind_has_the_type_of_its_config() -> None:
    typed = {}
    for overload in typing.get_overloads(ludus.example):
        kind, config = overload.__annotations__["kind"], overload.__annotations__["return"]
        typed[kind] = config
    own = {
        f"Literal['{kind}']": find("trainer", kind).Config.__name__ for kind in listed("trainer")
    }
    assert typed == {**own, "str": "Any"}


def test_importing_ludus_and_every_room_brings_in_no_torch() -> None:
    code = f"import sys, {', '.join(PACKAGES)}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_mypy_knows_every_name_and_checks_examples_and_documents(
    tmp_path: Path,
) -> None:
    lines = [f"import {package}" for package in PACKAGES]
    for package in PACKAGES:
        names = importlib.import_module(package).__all__
        lines += [f"reveal_type({package}.{name})" for name in names]
    (tmp_path / "every_name.py").write_text("\n".join(lines) + "\n")
    (tmp_path / "misspelt.py").write_text(
        "import ludus\nimport ludus.rl\n\nludus.Jugde\nludus.rl.Agnet\n"
    )
    taught = (ROOT / "docs" / "add-your-own.md").read_text()
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", taught, re.DOTALL)):
        (tmp_path / f"taught_{number}.py").write_text(block)
    files = [*sorted(tmp_path.glob("*.py")), ROOT / "tests" / "typed_user.py"]
    files += sorted((ROOT / "examples").glob("*.py"))
    # The settings and the cache are those of `make check`, so that only these files are new to mypy.
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", *map(str, files)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": "."},
        timeout=600,
    )
    told = done.stdout.splitlines()
    errors = [line for line in told if ": error: " in line]
    # To mypy a call of a torch module returns Any.
    errors = [line for line in errors if "taught_" not in line or "[no-any-return]" not in line]
    assert len(errors) == 2, done.stdout + done.stderr
    assert re.search(r'misspelt\.py:4: error: .* no attribute "Jugde"; maybe "Judge"\?', errors[0])
    assert re.search(r'misspelt\.py:5: error: .* no attribute "Agnet"; maybe "Agent"\?', errors[1])
    revealed = [line for line in told if "Revealed type is" in line]
    assert len(revealed) == len([line for line in lines if line.startswith("reveal_type")])
    unknown = [line for line in revealed if 'type is "Any"' in line]
    assert not unknown, "\n".join(unknown)
