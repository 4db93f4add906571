"""The shipped files read as one language: a key has the same comment wherever it stands."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

import pytest

CONFIGS = Path(__file__).parents[2] / "configs"
SHIPPED = sorted(path for path in CONFIGS.rglob("*.yaml") if path.parent.name != "sections")
FIVE = ["supervised", "active", "ppo", "fused_ppo", "vanilla_ppo"]
A_LINE = re.compile(r"^(?P<indent> *(?:- )?)(?P<key>\w+):(?P<value>[^#]*)(?:# (?P<comment>.*))?$")

# Keys that have another meaning in another section; they are compared section by section.
BY_SECTION = {
    "clip": "a range of the ratio, or of normalised values",
    "env": "the training env, or that of an evaluation",
    "episodes": "of an evaluation, or of a test of each model",
    "keep_every_rounds": "models to keep, or past players",
    "loss": "a name, or a section with the clip range",
    "max_episode_steps": "null has a meaning for gymnasium's envs alone",
    "max_message_rounds": "of a protocol, or what bodies are built for",
    "max_opt_steps": "a limit, or with counted_in: steps the length of the run",
    "normalise": "observations and rewards, or importance weights",
    "opponent": "for a role that is not trained, or for an evaluation",
    "share": "of sparring partners, or of past players",
    "target": "the target network, or a score to reach",
    "temperature": "SAC's alpha, or temperature scaling",
    "timeout_seconds": "of an evaluation, or of a message",
    "total_steps": "of exploration in env steps, of other schedules in the schedule's own steps",
    "widths": "of the fused trainers always with tanh",
}
# Keys whose comment is about the value that a file has chosen, and comments that only one file can have.
APART = {
    "kind",
    "supervised-images: path",
    "supervised-images: validation_fraction",
    "supervised-images: test_fraction",
    "fused_dqn: precision",
    "fused_dqn: total_steps",
    "population: ema_decay",
    "population: engine",
    "population: max_epochs",
    "population: seeds",
    "population: size",
    "population: workers",
    "pure_text_ei-arithmetic: url",
    "reinforce: num_epochs",
    "spg: engine",
    "spg: minibatch_size",
    "sweep: batch_size",
    "sweep: deterministic",
    "sweep: engine",
    "sweep: max_env_steps",
    "sweep: max_epochs",
    "sweep: workers",
    "text_tuning: max_epochs",
    "text_tuning: model",
}

# Keys that mean something else where agents are models behind an API: these are compared apart.
OF_TEXT = {
    "analysers",
    "budget",
    "max_iterations",
    "num_epochs",
    "pretraining",
    "rollouts_per_iteration",
    "selection",
    "workers",
}


def comments(path: Path) -> dict[str, str]:
    """Return the comment of each key of a file, by its dotted path; an empty one where it has none."""
    found: dict[str, str] = {}
    sections: list[tuple[int, str]] = []
    for line in path.read_text().splitlines():
        match = A_LINE.match(line)
        if match is None:
            continue
        indent = len(match["indent"])
        sections = [section for section in sections if section[0] < indent]
        sections.append((indent, match["key"]))
        found[".".join(name for _, name in sections)] = match["comment"] or ""
    return found


def compared_as(path: str, by_section: Collection[str]) -> str:
    *sections, key = re.sub(r"^((datacenter|edge|training)\.)+", "", path).split(".")
    if key not in by_section:
        return key
    if sections[-1:] == ["schedule"]:
        sections = sections[:-1]
    return ".".join([*sections[-1:], key])


def several_comments(
    by_section: Collection[str], apart: Collection[str], of_text: Collection[str] = OF_TEXT
) -> dict[str, set[str]]:
    """Return the keys with more than one comment, and those comments."""
    found: dict[str, set[str]] = {}
    for path in SHIPPED:
        for dotted, comment in comments(path).items():
            key = dotted.split(".")[-1]
            if key not in apart and f"{path.stem}: {key}" not in apart:
                is_own = key in of_text and path.stem.startswith("pure_text")
                name = f"text: {dotted}" if is_own else compared_as(dotted, by_section)
                found.setdefault(name, set()).add(comment)
    return {key: said for key, said in found.items() if len(said) > 1}


def test_a_key_has_the_same_comment_in_every_shipped_file() -> None:
    assert several_comments(BY_SECTION, APART) == {}, "one comment for each, or an entry above"


def test_no_exception_is_listed_in_vain() -> None:
    for name in BY_SECTION:
        assert several_comments(BY_SECTION.keys() - {name}, APART), name
    for name in OF_TEXT:
        assert several_comments(BY_SECTION, APART, OF_TEXT - {name}), name
    for name in APART:
        assert several_comments(BY_SECTION, APART - {name}), name


@pytest.mark.parametrize("name", FIVE)
def test_a_shipped_file_begins_with_what_it_trains_and_where_keys_are_described(name: str) -> None:
    head = [line for line in (CONFIGS / f"{name}.yaml").read_text().splitlines() if line[:1] == "#"]
    assert len(head) > 1
    assert head[-1] == "# Every key is here; `ludus explain` describes each."
