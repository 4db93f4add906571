"""The scenario `arithmetic`: word problems with a claimed answer, which is right or wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from ludus.config.base import Positive
from ludus.config.registry import register
from ludus.core.errors import ConfigError
from ludus.seeds import derive
from ludus.text.scenario import TextDataset, TextDatasets, TextScenario, TextScenarioConfig

_NAMES = ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gita", "Hugo", "Ines", "Jon")
_THINGS = ("apples", "books", "coins", "marbles", "pencils", "shells", "stamps", "tickets")
_MOST_TRIES = 100


class Problem(NamedTuple):
    """A word problem, its answer, and the steps to it."""

    text: str
    answer: int
    solution: str


class ArithmeticConfig(TextScenarioConfig):
    """Word problems made from templates."""

    kind: Literal["arithmetic"]
    """Word problems with a claimed answer."""
    largest: Annotated[int, Field(ge=5, le=10_000)]
    """The largest number in a problem."""
    num_steps: Annotated[list[Annotated[int, Field(ge=1, le=3)]], Field(min_length=1)]
    """The numbers of steps that problems take, of 1 to 3."""
    largest_error: Positive
    """A wrong claim differs from the answer by this at most."""
    train_size: Positive
    """The number of questions to learn from."""
    test_size: Positive
    """The number of questions of tests; none of their problems is in training."""

    def problems(self) -> Iterator[str]:
        """Yield each key that the others make impossible."""
        if len(set(self.num_steps)) < len(self.num_steps):
            yield "'num_steps' holds a number twice; name each once"


@register("text_scenario", "arithmetic")
class Arithmetic(TextScenario):
    """Half of the claims are right; problems are all different."""

    Config = ArithmeticConfig
    config: ArithmeticConfig

    def make_datasets(self, seed: int) -> TextDatasets:
        """Return the questions; test problems differ from all in training."""
        config = self.config
        random = Random(derive(seed, "text/arithmetic"))
        problems = self._distinct(random, config.train_size + config.test_size)
        return TextDatasets(
            train=self._claimed(problems[: config.train_size], random),
            test=self._claimed(problems[config.train_size :], random),
        ).check()

    def _distinct(self, random: Random, count: int) -> list[Problem]:
        found: dict[str, Problem] = {}
        tries = 0
        while len(found) < count:
            problem = make_problem(
                random, random.choice(self.config.num_steps), self.config.largest
            )
            tries = tries + 1 if problem.text in found else 0
            found.setdefault(problem.text, problem)
            if tries > _MOST_TRIES:
                raise ConfigError(
                    f"'scenario': there are hardly more than {len(found)} different problems, but"
                    f" 'train_size' and 'test_size' ask for {count}; raise 'largest', or lower them"
                )
        return list(found.values())

    def _claimed(self, problems: list[Problem], random: Random) -> TextDataset:
        labels = [i % 2 for i in range(len(problems))]
        random.shuffle(labels)
        claims = [
            one.answer if label else wrong_claim(one.answer, self.config.largest_error, random)
            for one, label in zip(problems, labels, strict=True)
        ]
        questions = [
            f"{one.text} Claimed answer: {claim}."
            for one, claim in zip(problems, claims, strict=True)
        ]
        columns = {
            "question": questions,
            "problem": [one.text for one in problems],
            "claim": [str(claim) for claim in claims],
            "solution": [one.solution for one in problems],
        }
        return TextDataset(columns, labels)

    def demonstrate(
        self, agent: str, row: Mapping[str, str], label: int, *, decides: bool, random: Random
    ) -> str | int:
        """Return a random decision, or the solution that a prover knows."""
        return random.randrange(2) if decides else row["solution"]


def wrong_claim(answer: int, largest_error: int, random: Random) -> int:
    """Return a number near the answer that is another, and not negative."""
    errors = [
        error for error in range(-largest_error, largest_error + 1) if error and answer + error >= 0
    ]
    return answer + random.choice(errors)


Step = Callable[[Random, int, int], tuple[str, int, str] | None]


def _gets(random: Random, have: int, largest: int) -> tuple[str, int, str]:
    more = random.randint(1, largest)
    return f"A friend brings {more} more.", have + more, f"{have} + {more} = {have + more}"


def _gives(random: Random, have: int, largest: int) -> tuple[str, int, str] | None:
    if have < 2:
        return None
    less = random.randint(1, min(have - 1, largest))
    return f"Then {less} are given away.", have - less, f"{have} - {less} = {have - less}"


def _multiplies(random: Random, have: int, largest: int) -> tuple[str, int, str] | None:
    if 2 * have > largest * largest:
        return None
    times = random.randint(2, 5)
    return (
        f"A week later there are {times} times as many.",
        have * times,
        f"{have} * {times} = {have * times}",
    )


_STEPS: tuple[Step, ...] = (_gets, _gives, _multiplies)


def make_problem(random: Random, num_steps: int, largest: int) -> Problem:
    """Return a problem of so many steps."""
    name, thing = random.choice(_NAMES), random.choice(_THINGS)
    have = random.randint(2, largest)
    sentences = [f"{name} has {have} {thing}."]
    work: list[str] = []
    while len(work) < num_steps:
        step = random.choice(_STEPS)(random, have, largest)
        if step is not None:
            sentence, have, line = step
            sentences.append(sentence)
            work.append(line)
    sentences.append(f"How many {thing} are there now?")
    return Problem(" ".join(sentences), have, ", ".join(work))
