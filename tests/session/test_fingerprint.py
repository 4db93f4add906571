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


def test_processors_of_one_name_and_the_same_instructions_are_told_apart_by_their_model() -> None:
    now = fingerprint(torch.device("cpu"))
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        family = next((line.split()[-1] for line in file if line.startswith("cpu family")), "")
    assert now["cpu_model"].startswith(family)
    assert differences({**now, "cpu_model": "another"}, now) == [
        f"cpu_model: another -> {now['cpu_model']}"
    ]


def test_what_an_older_run_did_not_note_has_not_changed() -> None:
    now = fingerprint(torch.device("cpu"))
    older = {name: fact for name, fact in now.items() if name not in ("instructions", "cpu_model")}
    assert differences(older, now) == []
    assert differences({**older, "threads": "9"}, now) == [f"threads: 9 -> {now['threads']}"]
