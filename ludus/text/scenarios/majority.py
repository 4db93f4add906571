"""The scenario `majority`: whether a string has more a's than b's; the verifier sees some of its letters."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator, Mapping
from random import Random
from typing import Annotated, Literal

from pydantic import Field

from ludus.config.base import Count, Positive, Share
from ludus.config.registry import register
from ludus.text.scenario import TextDataset, TextDatasets, TextScenario, TextScenarioConfig

_FOLDS = 5


class MajorityConfig(TextScenarioConfig):
    """Strings of a and b."""

    kind: Literal["majority"]
    """Strings of a and b, and the letter that most of them are."""
    num_letters: Annotated[int, Field(ge=3, le=15)]
    """The number of letters of a string, an odd number."""
    num_as: Annotated[list[Count], Field(min_length=1)]
    """The numbers of a's that occur: those near half of the letters are hard."""
    num_seen: Positive
    """The number of letters, from the first on, that the verifier sees."""
    prover_accuracy: Share
    """The share of the prover's demonstrations that name the right letter; 0.5 is no knowledge."""

    def problems(self) -> Iterator[str]:
        """Yield each key that the others make impossible."""
        if self.num_letters % 2 == 0:
            yield f"'num_letters' is {self.num_letters}, so a string may have no majority; give an odd number"
        if max(self.num_as) > self.num_letters:
            yield f"'num_as' holds {max(self.num_as)}, of 'num_letters' {self.num_letters}; lower it"
        if self.num_seen > self.num_letters:
            yield f"'num_seen' is {self.num_seen} of 'num_letters' {self.num_letters}; lower it"
        sides = {2 * count > self.num_letters for count in self.num_as}
        if len(sides) < 2:
            yield "'num_as' has counts on one side of the half alone, so every answer is the same; add others"


@register("text_scenario", "majority")
class Majority(TextScenario):
    """All strings of these counts; a fifth of them, chosen by a checksum, is for tests."""

    Config = MajorityConfig
    config: MajorityConfig

    def make_datasets(self, seed: int) -> TextDatasets:
        """Return the strings, the same for every seed."""
        config = self.config
        strings = [
            "".join(letters)
            for letters in itertools.product("ab", repeat=config.num_letters)
            if letters.count("a") in config.num_as
        ]
        is_test = {one: zlib.crc32(one.encode()) % _FOLDS == 0 for one in strings}
        return TextDatasets(
            train=self._made([one for one in strings if not is_test[one]]),
            test=self._made([one for one in strings if is_test[one]]),
        ).check()

    def _made(self, strings: list[str]) -> TextDataset:
        seen = self.config.num_seen
        columns = {"letters": strings, "seen": [one[:seen] for one in strings]}
        return TextDataset(columns, [int(2 * one.count("a") > len(one)) for one in strings])

    def demonstrate(
        self, agent: str, row: Mapping[str, str], label: int, *, decides: bool, random: Random
    ) -> str | int:
        """Return a random decision, or the letter of a prover that is right as often as configured."""
        if decides:
            return random.randrange(2)
        is_right = random.random() < self.config.prover_accuracy
        return "a" if (label == 1) == is_right else "b"
