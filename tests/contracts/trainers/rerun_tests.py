"""Tests of an earlier run, which is made once and never changes."""

from __future__ import annotations

import functools
import tempfile

import ludus
from tests.arena.small import small_arena
from tests.arena.trainers.test_rerun_tests import EARLIER, rerun

REFUSALS = {"queue": "what was to be tested is not there"}


@functools.cache
def earlier() -> str:
    root = tempfile.mkdtemp()
    return str(ludus.build_trainer(small_arena(**EARLIER)).fit(root=root).run_dir)


def make() -> ludus.Trainer:
    return ludus.build_trainer(rerun(earlier()))
