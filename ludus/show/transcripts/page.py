"""The page of transcripts: who said what, filtered and searched in the browser, whole in one file."""

from __future__ import annotations

import base64
import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ludus.show.report.charts import NUM_COLOURS, text
from ludus.show.report.page_data import safe_json
from ludus.show.report.scales import short_number
from ludus.show.report.style import STYLE
from ludus.show.transcripts.style import TRANSCRIPT_STYLE
from ludus.show.transcripts.transcript import Transcript, TurnText
from ludus.store.outputs import head_of, tail_of, write_file

SCRIPT = Path(__file__).with_name("page.js").read_text(encoding="utf-8")
_HASH = "sha256-" + base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none';"
    f" script-src '{_HASH}'"
)
_FOOTER = (
    "Written by ludus. This page of transcripts is whole in itself; its one script shows the episodes, and"
    " nothing else can run."
)
_MOST_EPISODES = 20_000
_MOST_CHARACTERS = 40_000_000
_LONGEST = 50_000
_MOST_AGENT_CARDS = 6
_GOOD, _BAD = ("right", "won", "correct"), ("wrong", "lost", "incorrect")


def write_page(path: Path, transcripts: Sequence[Transcript], *, title: str, about: str) -> None:
    """Write the page to a file; raise StorageError if that is anything but an earlier page."""
    page = transcripts_page(transcripts, title=title, about=about)
    write_file(path, page.encode(errors="replace"), is_page, what="a page of transcripts")


def is_page(path: Path) -> bool:
    """Return whether a file is a page of transcripts that ludus wrote."""
    is_html = head_of(path, 15) == b"<!DOCTYPE html>"
    return is_html and _FOOTER.encode() in tail_of(path, 400)


def transcripts_page(transcripts: Sequence[Transcript], *, title: str, about: str) -> str:
    """Return the page of these episodes; `about` is a line above the title, such as the iteration.

    A page of very many episodes shows the first of them, and says so.
    """
    shown = _bounded(transcripts)
    cut = len(transcripts) - len(shown)
    left_out = (
        f'<p class="warn">The first {len(shown):,} of {len(transcripts):,} episodes are on this page; the'
        " file of lines next to it has all.</p>"
        if cut
        else ""
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{text(title)} · {text(about)} · transcripts</title>
<style>{STYLE}{TRANSCRIPT_STYLE}</style>
</head>
<body>
<main>
<p class="kicker">ludus transcripts · {text(about)}</p>
<h1>{text(title)}</h1>
{_cards(transcripts)}{left_out}
<noscript><p class="warn">The episodes are shown by the script of this page, which is turned off here; the
 file of lines next to it has the same.</p></noscript>
{_FORM}
<div id="episodes"></div>
<nav id="below" class="pages" aria-label="Pages"></nav>
<p class="note keys"><kbd>/</kbd> search <kbd>j</kbd> <kbd>k</kbd> next and previous episode
 <kbd>[</kbd> <kbd>]</kbd> previous and next page <kbd>Esc</kbd> leave the search</p>
<script type="application/json" id="transcripts">{safe_json(_data(shown))}</script>
<script>{SCRIPT}</script>
<footer>{_FOOTER}</footer>
</main>
</body>
</html>
"""


_FORM = """<form id="filters" class="panel" hidden>
<div class="row"><label class="search"><span>search</span> <input type="search" id="search"
 autocomplete="off" spellcheck="false" placeholder="in questions and messages"></label>
<label>outcome <select id="outcome"></select></label>
<label>set <select id="split"></select></label>
<label>label <select id="y"></select></label>
<label>channel <select id="channel"></select></label>
<label>order <select id="order"></select></label></div>
<div class="row"><span id="agents" role="group" aria-label="Agents"></span>
<label><input type="checkbox" id="truncated"> <span></span></label>
<label><input type="checkbox" id="malformed"> <span></span></label></div>
<div class="row"><output id="count" aria-live="polite"></output>
<span id="above" class="pages"></span></div>
</form>"""


def _bounded(transcripts: Sequence[Transcript]) -> Sequence[Transcript]:
    """Return as many of the first episodes as a browser opens quickly."""
    length = 0
    for number, one in enumerate(transcripts[:_MOST_EPISODES]):
        length += min(len(one.question), _LONGEST)
        length += sum(min(len(turn.text), _LONGEST) for turn in one.turns)
        if length > _MOST_CHARACTERS:
            return transcripts[: max(1, number)]
    return transcripts[:_MOST_EPISODES]


def _cards(transcripts: Sequence[Transcript]) -> str:
    """Return the figures of all episodes as cards."""
    cards = [(f"{len(transcripts):,}", "episode" if len(transcripts) == 1 else "episodes")]
    outcomes = Counter(one.outcome for one in transcripts if one.outcome is not None)
    for word, count in sorted(outcomes.items(), key=lambda pair: (-pair[1], pair[0]))[:3]:
        cards.append((f"{count / len(transcripts):.1%}", word))
    for agent in _agents(transcripts)[:_MOST_AGENT_CARDS]:
        rewards = [one.rewards[agent] for one in transcripts if agent in one.rewards]
        if rewards:
            mean = float(f"{math.fsum(rewards) / len(rewards):.3g}")
            cards.append((short_number(mean), f"mean reward of {agent}"))
    tokens = sum(turn.tokens for one in transcripts for turn in one.turns)
    if tokens:
        cards.append((f"{tokens:,}", "tokens sampled"))
    shown = "".join(
        f'<div class="card"><b>{text(value)}</b><span>{text(name)}</span></div>'
        for value, name in cards
    )
    return f'<div class="cards">{shown}</div>'


def _agents(transcripts: Sequence[Transcript]) -> list[str]:
    """Return the agents in the order in which they first speak or are rewarded."""
    found: dict[str, None] = {}
    for one in transcripts:
        found |= dict.fromkeys([*(turn.agent for turn in one.turns), *one.rewards])
    return list(found)


def _data(transcripts: Sequence[Transcript]) -> dict[str, object]:
    """Return all that the script shows; agents and channels stand as their numbers."""
    agents = {agent: number for number, agent in enumerate(_agents(transcripts))}
    named = [turn.channel for one in transcripts for turn in one.turns if turn.channel is not None]
    channels = {channel: number for number, channel in enumerate(dict.fromkeys(named))}

    def turn_data(turn: TurnText) -> list[object]:
        channel = -1 if turn.channel is None else channels[turn.channel]
        flags = turn.is_truncated + 2 * turn.is_malformed
        said = _clipped(turn.text)
        return [turn.round, agents[turn.agent], channel, said, turn.decision, turn.tokens, flags]

    return {
        "agents": list(agents),
        "channels": list(channels),
        "colours": NUM_COLOURS,
        "good": _GOOD,
        "bad": _BAD,
        "episodes": [
            {
                "index": one.index,
                "question": _clipped(one.question),
                "y": one.y,
                "verdict": one.verdict,
                "outcome": one.outcome,
                "split": one.split,
                "rewards": [[agents[agent], _finite(gain)] for agent, gain in one.rewards.items()],
                "turns": [turn_data(turn) for turn in one.turns],
                "notes": [_clipped(note) for note in one.notes],
            }
            for one in transcripts
        ],
    }


def _clipped(said: str) -> str:
    if len(said) <= _LONGEST:
        return said
    return f"{said[:_LONGEST]}\n… {len(said) - _LONGEST:,} more characters are in the file of lines"


def _finite(value: float) -> float | str:
    """Return a number that JSON has, or the name of one that it has not."""
    return float(value) if math.isfinite(value) else str(float(value))
