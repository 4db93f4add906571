"""Transcripts: rollouts as lines, and a page that shows them and runs no script of theirs."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from ludus.core.errors import LudusError, StorageError
from ludus.show.transcripts.page import SCRIPT, transcripts_page, write_page
from ludus.show.transcripts.transcript import from_lines, to_lines
from ludus.store.local import LocalStorage
from ludus.text.rollouts.episodes import to_arrays
from ludus.text.rollouts.play import TextTable
from ludus.text.rollouts.transcript import Transcript, TurnText
from ludus.text.rollouts.transcripts import page_name, transcripts_of, write_transcripts
from ludus.text.scenario import TextDataset
from tests.show.test_report import HOSTILE, Page
from tests.text.small import DEBATE, NIP, Scripted, episode, handler_of, played, prompts_of

needs_browser = pytest.mark.skipif(
    shutil.which("chromium") is None, reason="chromium is not installed"
)


def turn(text: str, *, agent: str = "prover", round_: int = 1, **more: object) -> TurnText:
    return TurnText(round_, agent, None, text, **more)  # type: ignore[arg-type]


def transcript(index: int = 0, *turns: TurnText, **more: object) -> Transcript:
    given: dict[str, object] = {
        "question": f"question {index}?",
        "y": 1,
        "rewards": {"prover": 1.0, "verifier": -0.5},
        "verdict": "accept",
        "outcome": "right",
        **more,
    }
    return Transcript(index=index, turns=turns, **given)  # type: ignore[arg-type]


def hostile(word: str) -> Transcript:
    said = TurnText(1, word, word, word, word, 3, True, True)
    return Transcript(
        0, word, 1, (said, said), {word: 1.0}, word, word, 2, word, (word, f"a\0\u2028{word}")
    )


def test_rollouts_become_turns_with_their_decisions_and_rewards() -> None:
    handler = handler_of(NIP)
    speakers = {"prover": Scripted("because", "so"), "verifier": Scripted("why?", "well\nno")}
    episodes = played(
        TextTable(handler, prompts_of(handler), speakers), [episode(y=0, index=1, seed=4)]
    )
    dataset = TextDataset({"q": ["other", "what?"], "hint": ["", "look"]}, [1, 0])
    (one,) = transcripts_of(
        to_arrays(episodes, handler), dataset, handler, split="test", iteration=3
    )
    assert (one.index, one.y, one.iteration, one.split) == (1, 0, 3, "test")
    assert one.question == "q: what?\nhint: look"
    assert [(each.round, each.agent, each.text) for each in one.turns] == [
        (1, "prover", "because"),
        (2, "verifier", "why?"),
        (3, "prover", "so"),
        (4, "verifier", "well\nno"),
    ]
    assert [each.decision for each in one.turns] == [None, None, None, "reject"]
    assert [each.channel for each in one.turns] == [None] * 4
    assert [each.tokens for each in one.turns] == [2] * 4
    assert (one.verdict, one.outcome) == ("reject", "right")
    assert one.rewards == {"prover": 0.0, "verifier": 1.0}
    speakers = {"prover": Scripted("because"), "verifier": Scripted("no")}
    episodes = played(TextTable(handler, prompts_of(handler), speakers), [episode(y=1)])
    (one,) = transcripts_of(
        to_arrays(episodes, handler), dataset, handler, split="test", iteration=3
    )
    assert (one.verdict, one.outcome) == ("reject", "wrong")


def test_messages_of_several_channels_are_apart() -> None:
    handler = handler_of(DEBATE)
    names = handler.agent_names
    speakers = {name: Scripted(*[f"{name} speaks"] * 3) for name in names}
    speakers["verifier"] = Scripted(
        *["prover0_channel: you?\nprover1_channel: and you?"] * 3, max_retries=0
    )
    episodes = played(TextTable(handler, prompts_of(handler), speakers), [episode()])
    dataset = TextDataset({"q": ["what?"]}, [1])
    (one,) = transcripts_of(
        to_arrays(episodes, handler), dataset, handler, split="train", iteration=0
    )
    assert one.question == "what?"
    said = [
        (each.agent, each.channel, each.text, each.tokens) for each in one.turns if each.round == 1
    ]
    assert [row for row in said if row[0] == "verifier"] == [
        ("verifier", "prover0_channel", "you?", 0),
        ("verifier", "prover1_channel", "and you?", 2),
    ]
    provers = [each for each in one.turns if each.agent == "prover0"]
    assert {each.channel for each in provers} == {"prover0_channel"}


def test_lines_are_read_back_as_they_were_written() -> None:
    written = [
        transcript(3, turn("é\n\0 \ud800", is_truncated=True), y=None, verdict=None, outcome=None),
        transcript(4, rewards={"prover": float("inf")}, notes=("a", "b")),
        hostile(HOSTILE[0]),
    ]
    data = to_lines(written)
    assert len(data.splitlines()) == 3
    assert list(from_lines(data, source="x")) == written
    assert to_lines(from_lines(data, source="x")) == data


@pytest.mark.parametrize(
    "change",
    [
        {"index": "1"},
        {"index": True},
        {"turns": {}},
        {"turns": [{}]},
        {"turns": [3]},
        {"rewards": {"a": "much"}},
        {"rewards": {"a": None}},
        {"question": 3},
        {"verdict": 1},
        {"notes": [1]},
    ],
)
def test_a_line_that_is_no_transcript_is_named(change: dict[str, object]) -> None:
    good = json.loads(to_lines([transcript(0, turn("a"))]))
    data = to_lines([transcript()]) + json.dumps(good | change).encode() + b"\n"
    with pytest.raises(LudusError, match=r"^t.jsonl, line 2, is not a transcript"):
        list(from_lines(data, source="t.jsonl"))
    for broken in (b"[", b"[]", b"{}", b'{"index": 1, "index": 2}', b"[" * 10_000):
        with pytest.raises(LudusError, match="line 1, is not a transcript"):
            list(from_lines(broken, source="t.jsonl"))


def test_training_and_tests_of_an_iteration_are_on_one_page(tmp_path: Path) -> None:
    files = LocalStorage(tmp_path / "my run")
    files.make_root()
    handler, dataset = handler_of(NIP), TextDataset({"q": ["what?"]}, [1])

    def write(said: str, split: str) -> None:
        speakers = {"prover": Scripted(said), "verifier": Scripted("yes")}
        table = TextTable(handler, prompts_of(handler), speakers)
        rollouts = to_arrays(played(table, [episode()]), handler)
        write_transcripts(files, rollouts, dataset, handler, split=split, iteration=3)

    write("learned", "train")
    name = "transcripts/iteration-3.html"
    assert name == page_name("train", 3) == page_name("test", 3)
    assert "tested" not in files.read(name).decode()
    write("tested", "test")
    write("at the end", "test-final_test")
    page = files.read(name).decode()
    assert "learned" in page
    assert "tested" in page
    assert "<h1>my run</h1>" in page
    final = files.read("transcripts/test-final_test-3.html").decode()
    assert "learned" not in final
    assert "iteration 3 · test-final_test" in final
    (line,) = from_lines(files.read("transcripts/train-3.jsonl"), source="")
    assert [one.text for one in line.turns] == ["learned", "yes"]
    again = files.read(name)
    write("learned", "train")
    write("tested", "test")
    assert files.read(name) == again


def test_a_run_in_memory_writes_no_transcripts() -> None:
    handler, dataset = handler_of(NIP), TextDataset({"q": ["what?"]}, [1])
    rollouts = to_arrays([episode()], handler)
    write_transcripts(None, rollouts, dataset, handler, split="train", iteration=0)
    (one,) = transcripts_of(rollouts, dataset, handler, split="train", iteration=0)
    assert (one.turns, one.verdict, one.outcome) == ((), None, "undecided")


def test_a_page_is_written_over_an_earlier_page_only(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    write_page(path, [transcript()], title="one", about="iteration 0")
    write_page(path, [], title="none", about="iteration 1")
    assert "<h1>none</h1>" in path.read_text()
    path.write_text("<!DOCTYPE html> mine")
    with pytest.raises(StorageError, match="was not written by ludus as a page of transcripts"):
        write_page(path, [transcript()], title="one", about="iteration 0")


def test_nothing_of_the_data_is_markup(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    words = " ".join(HOSTILE)
    write_page(path, [hostile(word) for word in HOSTILE], title=words, about=words)
    page = Page(path)
    assert page.scripts[1:] == [SCRIPT]
    assert len(page.scripts) == 2
    assert not re.search("[<>&]", page.scripts[0])
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert not page.tags & {"iframe", "img"}
    policy = next(
        value for name, value in page.attributes if name == "content" and "script" in value
    )
    assert "unsafe" not in policy.partition("script-src")[2]


def test_cards_count_outcomes_and_rewards() -> None:
    some = [
        transcript(0, turn("a", tokens=5)),
        transcript(1, turn("b", tokens=1_200), outcome="wrong", rewards={"prover": 0.0}),
        transcript(2, turn("c"), outcome=None, rewards={"prover": 0.0}),
    ]
    page = transcripts_page(some, title="t", about="a")
    for card in (
        "<b>3</b><span>episodes</span>",
        "<b>33.3%</b><span>right</span>",
        "<b>0.333</b><span>mean reward of prover</span>",
        "<b>-0.5</b><span>mean reward of verifier</span>",
        "<b>1,205</b><span>tokens sampled</span>",
    ):
        assert card in page


def test_a_page_of_very_much_text_says_what_it_leaves_out() -> None:
    long = transcript(0, turn("x" * 60_000))
    page = transcripts_page([long], title="t", about="a")
    assert "10,000 more characters are in the file of lines" in page
    assert len(page) < 100_000
    many = [transcript(0, turn("x" * 50_000))] * 1_000
    page = transcripts_page(many, title="t", about="a")
    assert "of 1,000 episodes are on this page" in page
    assert len(page) < 45_000_000


def browse(folder: Path, some: Sequence[Transcript], script: str) -> dict[str, object]:
    """Return what a script that is given the page's window and document returns, in a real browser."""
    (folder / "page.html").unlink(missing_ok=True)
    write_page(folder / "page.html", some, title="t", about="iteration 0")
    (folder / "drive.html").write_text(
        '<!DOCTYPE html><meta charset="utf-8"><body><iframe src="page.html" style="width:400px;height:900px">'
        "</iframe><script>document.querySelector('iframe').onload = async event => {\n"
        "const frame = event.target.contentWindow, page = frame.document;\n"
        "const wait = time => new Promise(done => setTimeout(done, time));\n"
        "const all = (kind, of = page) => [...of.querySelectorAll(kind)];\n"
        "const words = kind => all(kind).map(one => one.textContent);\n"
        "const field = (id, value, kind = 'change') => { const one = page.getElementById(id);\n"
        "  one.value = value; one.dispatchEvent(new Event(kind)); };\n"
        "const press = key => page.body.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));\n"
        "let found; try { found = await (async () => {" + script + "})(); }\n"
        "catch (error) { found = {error: String(error)}; }\n"
        "document.body.textContent = 'found:' + JSON.stringify(found) + ';end';\n"
        "};</script></body>"
    )
    options = (
        "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync"
        " --disable-background-networking --disable-component-update --disable-web-security"
        " --allow-file-access-from-files --virtual-time-budget=5000 --dump-dom"
    )
    drive = (folder / "drive.html").as_uri()
    out = subprocess.run(
        ["chromium", *options.split(), f"--user-data-dir={folder / 'browser'}", drive],
        capture_output=True, text=True, timeout=300, check=True,
    ).stdout  # fmt: skip
    found: dict[str, object] = json.loads(
        html.unescape(out.partition("found:")[2].partition(";end")[0])
    )
    assert "error" not in found, found["error"]
    return found


@needs_browser
def test_a_real_browser_runs_nothing_of_the_data(tmp_path: Path) -> None:
    found = browse(
        tmp_path,
        [hostile(word) for word in HOSTILE],
        """
        const found = {scripts: all('script').length, said: words('.said'), questions: words('.question'),
          wide: page.documentElement.scrollWidth};
        field('search', 'alert(', 'input');
        await wait(300);
        found.marks = words('mark').length;
        found.searched = words('.said');
        found.odd = all('img, iframe, svg, [onerror]').length;
        return found;
        """,
    )
    assert found["scripts"] == 2
    assert found["odd"] == 0
    assert found["questions"] == HOSTILE
    assert found["said"] == [word for word in HOSTILE for _ in range(2)]
    assert found["searched"] == [word for word in HOSTILE if "alert(" in word for _ in range(2)]
    assert found["marks"]
    # The frame is as narrow as a phone.
    assert isinstance(found["wide"], int)
    assert found["wide"] <= 400


@needs_browser
def test_episodes_are_filtered_searched_and_turned_over(tmp_path: Path) -> None:
    some = [
        transcript(
            n,
            turn(f"argument {n}" + " and more" * (200 if n == 0 else 0)),
            TurnText(2, "verifier", "aside", f"<b>doubt</b> {n}", is_malformed=n == 7),
            outcome="right" if n % 3 else "wrong",
            rewards={"prover": -n},
            split="test" if n % 2 else "train",
        )
        for n in range(60)
    ]
    found = browse(
        tmp_path,
        some,
        """
        const found = {};
        const count = () => page.getElementById('count').textContent;
        found.first = [count(), all('article').length, words('#above span')];
        const more = page.querySelector('.more');
        found.long = page.querySelector('.long') !== null;
        more.click();
        found.open = [page.querySelector('.long') === null, more.textContent];
        press(']');
        found.second = words('article a')[0];
        press('j'); press('j'); press('k');
        found.current = words('.current a');
        field('outcome', '0');
        found.wrong = [count(), words('.bad')[0]];
        field('outcome', '');
        field('search', 'DOUBT</b> 5', 'input');
        await wait(300);
        found.search = [count(), words('mark'), words('article a')[1]];
        field('search', 'argument 12', 'input');
        await wait(300);
        found.once = count();
        all('#agents input')[0].click();
        found.hidden = [count(), words('.empty')];
        field('search', '', 'input');
        await wait(300);
        found.only = [count(), [...new Set(words('.name'))]];
        all('#agents input')[0].click();
        page.getElementById('malformed').click();
        found.malformed = [count(), words('.pill.bad').includes('unreadable')];
        page.getElementById('malformed').click();
        field('split', '1');
        found.split = count();
        field('split', '');
        field('order', '1');
        found.order = words('article a')[0];
        frame.location.hash = '#31';
        await wait(300);
        found.linked = words('.current a');
        return found;
        """,
    )
    assert found == {
        "first": ["60 episodes", 25, ["page 1 of 3"]],
        "long": True,
        "open": [True, "show less"],
        "second": "episode 26",
        "current": ["episode 26"],
        "wrong": ["20 of 60 episodes", "wrong"],
        "search": [
            "11 of 60 episodes",
            ["doubt</b> 5"] * 11,
            "episode 51",
        ],
        "once": "1 of 60 episodes",
        "hidden": ["0 of 60 episodes", ["No episode is like this."]],
        "only": ["60 episodes", ["verifier"]],
        "malformed": ["1 of 60 episodes", True],
        "split": "30 of 60 episodes",
        "order": "episode 60",
        "linked": ["episode 31"],
    }


@needs_browser
def test_thousands_of_episodes_open_at_once(tmp_path: Path) -> None:
    some = [transcript(n, *[turn("word " * 60)] * 4) for n in range(5_000)]
    found = browse(
        tmp_path,
        some,
        "return {shown: all('article').length, all: page.getElementById('count').textContent};",
    )
    assert found == {"shown": 25, "all": "5,000 episodes"}
