"""The journal of actions: every one since each reset, and no more."""

from __future__ import annotations

import numpy as np

from ludus.envs.journal import ActionJournal

NOTHING = np.zeros(1)
SHOWN = [(i, memoryview(NOTHING), memoryview(NOTHING)) for i in range(3)]


def test_the_journal_keeps_every_action_since_each_reset() -> None:
    random = np.random.default_rng(0)
    journal = ActionJournal(3, (2,), np.float32, is_kept=True)
    slow: list[list[list[float]]] = [[], [], []]
    for _ in range(2000):
        actions = random.random((3, 2)).astype(np.float32)
        journal.append(actions, SHOWN)
        for i in range(3):
            slow[i].append(actions[i].tolist())
            if random.random() < (0.001, 0.01, 0.3)[i]:
                journal.begin(i, NOTHING)
                slow[i] = []
        assert [journal.length(i) for i in range(3)] == [len(env) for env in slow]
    assert [journal.actions(i).tolist() for i in range(3)] == slow
    other = ActionJournal(3, (2,), np.float32, is_kept=True)
    other.load_state_dict(journal.state_dict())
    assert [other.actions(i).tolist() for i in range(3)] == slow


def test_the_journal_does_not_grow_with_the_run() -> None:
    journal = ActionJournal(2, (), np.int16, is_kept=True)
    for step in range(5000):
        journal.append(np.zeros(2, np.int64), SHOWN[:2])
        if step % 50 == 0:
            journal.begin(0, NOTHING)
            journal.begin(1, NOTHING)
    assert len(journal._rows) <= 128
