"""Prompts from files, and reading of answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from ludus.arena.protocol import ACCEPT, CONTINUE, REJECT
from ludus.config.registry import find
from ludus.config.sections import validate
from ludus.core.errors import ConfigError
from ludus.text.rollouts.prompts import SHIPPED, Heard, prompt_file, read_prompts
from ludus.text.rollouts.reading import read_answer
from tests.text.small import ADP, DEBATE, NIP, PROMPT, SOLO, handler_of, prompts_of

WORDS = {ACCEPT: "Decision: accept", REJECT: "Decision: reject"}
MERLIN = {**ADP, "kind": "merlin_arthur"}
MNIP = {key: value for key, value in DEBATE.items() if key != "provers_hear_each_other"} | {
    "kind": "mnip"
}


def test_a_prompt_holds_the_columns_the_goal_and_what_was_heard_in_order() -> None:
    handler = handler_of(NIP)
    book = prompts_of(
        handler,
        system="You are ${agent}, for ${goal}, round ${round} of ${rounds}.",
        speak="Go on.",
        decide="Decide.",
    )
    past = [[Heard("prover", "main", "one", True)], [Heard("verifier", "main", "two", False)]]
    found = book.messages("prover", {"q": "Q"}, past, round_index=2, may_decide=False)
    assert [tuple(one) for one in found] == [
        ("system", "You are prover, for yes, round 3 of 4."),
        ("user", "Q"),
        ("assistant", "one"),
        ("user", "verifier in main: two\nGo on."),
    ]
    last = book.messages("verifier", {"q": "Q"}, [], round_index=1, may_decide=True)[-1]
    assert last.content == "Q\nDecide."


@pytest.mark.parametrize("section", [ADP, NIP, DEBATE, SOLO, MERLIN, MNIP], ids=lambda s: s["kind"])
def test_the_shipped_prompts_of_a_protocol_fit_it(section) -> None:
    handler = handler_of(section)
    book = read_prompts(prompt_file("arithmetic", section["kind"]), handler, ["question"])
    for agent in handler.agent_names:
        shown = book.messages(agent, {"question": "Is it?"}, [], round_index=0, may_decide=False)
        assert "Is it?" in shown[-1].content


def test_every_shipped_file_is_of_a_protocol() -> None:
    for path in SHIPPED.rglob("*.yaml"):
        assert find("protocol", path.stem)


def test_prompts_of_a_scenario_come_before_those_of_all() -> None:
    assert prompt_file("majority", "adp").parent.name == "majority"
    assert prompt_file("arithmetic", "adp").parent.name == "prompts"
    with pytest.raises(
        ConfigError, match="no prompts for the scenario majority under the protocol x"
    ):
        prompt_file("majority", "x")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "expected a section for each agent"),
        ("nobody: {}", "'system' is missing"),
        ("verifier: 3", "expected keys and values"),
    ],
)
def test_a_wrong_file_of_prompts_is_one_sentence(text: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=told):
        read_prompts(path, handler_of(SOLO), ["q"])


def test_a_missing_file_of_prompts_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'prompts' names .*none.yaml, which cannot be read"):
        read_prompts(tmp_path / "none.yaml", handler_of(SOLO), ["q"])


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"question": "${letter}"}, r"'verifier.question' uses \$\{letter\}, which there is not"),
        ({"question": "costs $5"}, r"write \$\$ for the sign itself"),
        ({"accept": None}, "'verifier' decides, so 'accept' and 'reject'"),
        ({"accept": "No "}, "are the same words"),
    ],
)
def test_prompts_that_cannot_work_are_refused(changes, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        prompts_of(handler_of(SOLO), **changes)


def test_agents_without_prompts_and_prompts_without_agents_are_named() -> None:
    from ludus.text.rollouts.prompts import PromptBook, PromptConfig

    one = validate(PromptConfig, PROMPT, source="test")
    with pytest.raises(ConfigError, match=r"(?s)'verifer' is no agent.*verifier.*has no prompts"):
        PromptBook({"verifer": one}, handler_of(SOLO), ["q"], source="mine.yaml")


@pytest.mark.parametrize(
    ("text", "decision"),
    [
        ("Decision: accept", ACCEPT),
        ("because of this\n decision: REJECT. ", REJECT),
        ("Decision: accept\nor not", CONTINUE),
        ("I say Decision: accept", CONTINUE),
        ("", CONTINUE),
    ],
)
def test_the_last_line_alone_decides(text: str, decision: int) -> None:
    found = read_answer(text, channels=["main"], words=WORDS, may_decide=True, must_decide=False)
    assert found.decision == decision


def test_nobody_decides_before_its_turn_to() -> None:
    found = read_answer(
        "Decision: accept", channels=["main"], words=WORDS, may_decide=False, must_decide=False
    )
    assert found.decision == CONTINUE
    assert found.messages == {"main": "Decision: accept"}


def test_lines_go_to_the_channel_that_they_name() -> None:
    found = read_answer(
        "one: a\nmore\ntwo: b",
        channels=["one", "two"],
        words={},
        may_decide=False,
        must_decide=False,
    )
    assert found.messages == {"one": "a\nmore", "two": "b"}
    both = read_answer(
        "to all", channels=["one", "two"], words={}, may_decide=False, must_decide=False
    )
    assert both.messages == {"one": "to all", "two": "to all"}


@pytest.mark.parametrize(("text", "must"), [("", False), ("hm", True)])
def test_an_answer_without_a_message_or_a_due_decision_is_malformed(text: str, must: bool) -> None:
    found = read_answer(text, channels=["main"], words=WORDS, may_decide=must, must_decide=must)
    assert not found.is_well_formed
