"""What a run's bytes depend on besides its config is noted, and what has changed is told."""

from __future__ import annotations

import torch

from ludus.session.fingerprint import differences, fingerprint


def test_processors_of_one_name_are_told_apart_by_their_instructions() -> None:
    now = fingerprint(torch.device("cpu"))
    assert now["instructions"] == torch.backends.cpu.get_cpu_capability()
    assert differences({**now, "instructions": "DEFAULT"}, now) == [
        f"instructions: DEFAULT -> {now['instructions']}"
    ]


def test_what_an_older_run_did_not_note_has_not_changed() -> None:
    now = fingerprint(torch.device("cpu"))
    older = {name: fact for name, fact in now.items() if name != "instructions"}
    assert differences(older, now) == []
    assert differences({**older, "threads": "9"}, now) == [f"threads: 9 -> {now['threads']}"]
