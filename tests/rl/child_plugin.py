"""Loaded by child processes of the tests alone: they rebuild the tests' policy."""

from __future__ import annotations

from ludus.rl import evaluation_worker
from tests.envs import odd_envs

evaluation_worker.rebuild_policy = odd_envs.rebuild
