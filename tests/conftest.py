"""Shared by all tests: modules are found by listing folders, as kinds are."""

from __future__ import annotations

import functools
import gc
import getpass
import importlib.util
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING

import psutil
import pytest

from tests import object_store

if TYPE_CHECKING:
    from tests.faults.warm import WarmProcess
    from tests.process.warm_children import WarmChildren

os.environ.setdefault("OMP_NUM_THREADS", "1")

HERE = Path(__file__).parent
_OF_OTHERS = {"resource_tracker", "compile_worker"}
IN_MEMORY = Path("/dev/shm")
ENOUGH_BYTES = 4 << 30
MANY_MODULES, MANY_TESTS = 50, 200
_frozen = {"modules": 0, "tests": 0}


def choose_folder() -> None:
    """Let the runs of the tests be written to memory where there is enough: a disk makes each save wait.

    Whoever sets TMPDIR, or gives --basetemp, decides himself.
    """
    has_room = IN_MEMORY.is_dir() and shutil.disk_usage(IN_MEMORY).free >= ENOUGH_BYTES
    if has_room and os.access(IN_MEMORY, os.W_OK) and "TMPDIR" not in os.environ:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(IN_MEMORY))


choose_folder()
# What collecting makes stays, so looking for garbage in it would find none.
gc.disable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Undo what the import of TorchRL by tests does to all processes that anybody starts."""
    multiprocessing.set_start_method(None, force=True)
    freeze()
    gc.enable()


def freeze() -> None:
    """Let the garbage collector leave alone what is there: it would go through it for every other test."""
    gc.collect()
    gc.freeze()
    _frozen.update(modules=len(sys.modules), tests=0)


def pytest_runtest_logfinish() -> None:
    """Freeze what tests leave: the modules of the compiler, and what it keeps, are millions of objects."""
    _frozen["tests"] += 1
    if len(sys.modules) - _frozen["modules"] >= MANY_MODULES or _frozen["tests"] >= MANY_TESTS:
        freeze()


def modules_in(folder: str) -> dict[str, ModuleType]:
    """Return every module of a folder of the tests, by its name."""
    found = {}
    for path in sorted((HERE / folder).glob("[a-z]*.py")):
        name = f"contract_{folder.replace('/', '_')}_{path.stem}"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        found[path.stem] = module
    return found


@pytest.fixture(scope="session", autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Leave nothing behind: caches and temporary files lie below pytest's folder, and processes end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LUDUS_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        # What the compiler has made serves both processes of a run of the tests.
        here = tmp_path_factory.getbasetemp()
        shared = here.parent if "PYTEST_XDIST_WORKER" in os.environ else here
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(shared / "compiled"))
        temporary = tmp_path_factory.mktemp("tmp")
        # So do the headers that it compiles first, for ten seconds, and keeps with the temporary files.
        (shared / "headers").mkdir(exist_ok=True)
        (temporary / f"torchinductor_{getpass.getuser()}").symlink_to(shared / "headers")
        patch.setenv("TMPDIR", str(temporary))
        patch.setattr(tempfile, "tempdir", None)
        yield
    object_store.stop_all()
    gc.unfreeze()
    # A trainer that a test has killed in this process is garbage, and so are its loaders with their workers.
    gc.collect()
    children = [child.cmdline() for child in psutil.Process().children(recursive=True)]
    # Python's and torch's own end with this process.
    ours = [
        words
        for words in children
        if not _OF_OTHERS & {part for w in words for part in w.split(".")}
    ]
    assert not ours, f"the tests left processes behind: {ours}"


@pytest.fixture(scope="session", autouse=True)
def soon_begun() -> Iterator[None]:
    """Let runs of this process begin sooner: envs are tried for fewer steps, git and tables read once.

    The tests of the trial itself give it its length back, by `whole_trial`.
    """
    from ludus.data.sources import _table
    from ludus.envs import restore
    from ludus.session import session
    from ludus.store import proofs
    from tests import tables

    hash_of, hash_once = proofs._hash, functools.cache(proofs._hash)
    ours = f"{HERE}{os.sep}"
    with pytest.MonkeyPatch.context() as patch:
        # The modules of the tests are a script's own to a run, and there are hundreds of them.
        patch.setattr(
            proofs, "_hash", lambda path: (hash_once if path.startswith(ours) else hash_of)(path)
        )
        patch.setattr(_table, "_scikit_learn", tables.kept)
        patch.setattr(restore, "NUM_LIVED_STEPS", 24)
        patch.setattr(restore, "NUM_CHECKED_STEPS", 24)
        patch.setattr(session, "git_state", functools.cache(session.git_state))
        yield


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget after a test what it registers and declares, but not what a module registers once."""
    from ludus.config import families, registry
    from ludus.core import counters

    for category in families.categories():
        for kind in families.listed(category):
            registry.find(category, kind)
    kinds = {category: dict(known) for category, known in registry._REGISTERED.items()}
    monkeypatch.setattr(registry, "_REGISTERED", defaultdict(dict, kinds))
    for place, name in ((registry, "_EXAMPLES"), (registry, "_SECTIONS"), (families, "_ROOMS")):
        monkeypatch.setattr(place, name, dict(getattr(place, name)))
    monkeypatch.setattr(counters, "_OWNERS", dict(counters._OWNERS))
    monkeypatch.setattr(registry, "_loaded_entry_points", False)
    monkeypatch.setattr(registry, "loaded_plugins", [])
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for module in set(sys.modules) - before:
        if "plugin" in module:
            del sys.modules[module]


@pytest.fixture
def whole_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try envs for as many steps as for a user."""
    from ludus.envs import restore

    monkeypatch.setattr(restore, "NUM_LIVED_STEPS", 256)
    monkeypatch.setattr(restore, "NUM_CHECKED_STEPS", 256)


@pytest.fixture(scope="session")
def forking() -> Iterator[WarmChildren]:
    """One process that has imported what children of ours need, and forks them."""
    from tests.process.warm_children import WarmChildren

    children = WarmChildren()
    yield children
    children.close()


@pytest.fixture
def warm_children(forking: WarmChildren, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the processes beside a run be forked rather than started: for tests of what these do."""
    from ludus.process import child

    own = SimpleNamespace(Popen=forking.popen, DEVNULL=subprocess.DEVNULL)
    monkeypatch.setattr(child, "subprocess", own)


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmProcess]:
    """One process that has torch imported; it serves all tests that need many short-lived ones."""
    from tests.faults.warm import WarmProcess

    process = WarmProcess(tmp_path_factory.mktemp("warm"))
    yield process
    process.close()
