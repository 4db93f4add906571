"""The protocol that the page teaches is one that can be played, and is as short as it says."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from ludus.config.families import listed
from ludus.core.errors import ConfigError
from ludus.testing.episodes import check_episodes
from ludus.testing.protocols import check_protocol
from tests.arena.protocols.made import environment, mute_agents, order

PAGE = Path(__file__).parents[3] / "docs" / "arena-protocols.md"


@pytest.mark.covers("002-S9")
def test_the_protocol_that_the_page_teaches_can_be_played(tmp_path: Path) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    path = tmp_path / "taught.py"
    path.write_text(block.replace('"second_opinion"', '"second_opinion_taught"'))
    taught = runpy.run_path(str(path))
    keys, cls = taught["keys"], taught["SecondOpinion"]
    handler = cls(keys)
    once = ["prover:claims", "critic:objections", ""]
    assert order(handler) == once * 2
    check_protocol(handler, rows_of=mute_agents(handler).rows_of)
    check_episodes(environment(handler), num_symbols=3)
    private = handler.agent_channel_visibility["prover"]
    public = cls(keys.replace(objects_in_private=False)).agent_channel_visibility["prover"]
    assert (private, public) == (("claims",), ("claims", "objections"))
    with pytest.raises(ConfigError, match="set it to 3 or 6"):
        cls(keys.replace(max_message_rounds=4))


def test_the_page_has_a_row_for_each_protocol() -> None:

    rows = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(listed("protocol"))
