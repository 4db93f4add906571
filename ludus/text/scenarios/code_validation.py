"""The scenario `code_validation`: short Python functions that are right or have a fault; none is ever run."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from random import Random
from typing import Literal, NamedTuple

from ludus.config.base import Positive
from ludus.config.registry import register
from ludus.core.errors import ConfigError
from ludus.seeds import derive
from ludus.text.scenario import TextDataset, TextDatasets, TextScenario, TextScenarioConfig


class FunctionTask(NamedTuple):
    """A function to write: what is asked, the body that does it, and changes each of which breaks it."""

    asked: str
    body: str
    faults: tuple[tuple[str, str, str], ...]
    """A piece of the body, what it becomes, and the reason why that is wrong."""


_TASKS = (
    FunctionTask(
        "returns the sum of the numbers in `values` that are greater than {k}",
        """
        total = 0
        for value in values:
            if value > {k}:
                total += value
        return total
        """,
        (
            ("value > {k}", "value >= {k}", "it also adds values equal to {k}"),
            ("total = 0", "total = {k}", "the sum does not begin at 0"),
            ("total += value", "total = value", "it keeps the last such value instead of the sum"),
        ),
    ),
    FunctionTask(
        "returns how many numbers in `values` are divisible by {k}",
        """
        count = 0
        for value in values:
            if value % {k} == 0:
                count += 1
        return count
        """,
        (
            ("value % {k} == 0", "value % {k} != 0", "it counts those that are not divisible"),
            ("count += 1", "count += value", "it adds the values instead of counting them"),
            ("value % {k} == 0", "value // {k} == 0", "it tests the quotient, not the remainder"),
        ),
    ),
    FunctionTask(
        "returns the largest number in `values`, or {k} if there is none",
        """
        if not values:
            return {k}
        best = values[0]
        for value in values:
            if value > best:
                best = value
        return best
        """,
        (
            ("value > best", "value < best", "it finds the smallest number"),
            ("best = values[0]", "best = 0", "of negative numbers it returns 0"),
            ("        return best", "            return best", "it returns within the loop"),
        ),
    ),
    FunctionTask(
        "returns the items of `values` in reverse order, without the last {k} of the result",
        """
        turned = list(reversed(values))
        return turned[: max(len(turned) - {k}, 0)]
        """,
        (
            ("list(reversed(values))", "list(values)", "it does not reverse"),
            (
                "max(len(turned) - {k}, 0)",
                "{k}",
                "it keeps the first {k} instead of leaving {k} out",
            ),
            (
                "[: max(len(turned) - {k}, 0)]",
                "[{k} :]",
                "it leaves out the first {k}, not the last",
            ),
        ),
    ),
    FunctionTask(
        "returns the index of the first number in `values` that is at least {k}, or -1",
        """
        for index, value in enumerate(values):
            if value >= {k}:
                return index
        return -1
        """,
        (
            ("value >= {k}", "value > {k}", "it passes over a number equal to {k}"),
            ("return index", "return value", "it returns the number instead of its index"),
            ("return -1", "return 0", "without such a number it returns 0"),
        ),
    ),
    FunctionTask(
        "returns `values` with each number limited to the range from -{k} to {k}",
        """
        limited = []
        for value in values:
            limited.append(max(-{k}, min({k}, value)))
        return limited
        """,
        (
            ("max(-{k}, min({k}, value))", "min(-{k}, max({k}, value))", "min and max are swapped"),
            ("max(-{k}, min({k}, value))", "min({k}, value)", "it has no lower limit"),
            ("max(-{k}, min({k}, value))", "max(-{k}, value)", "it has no upper limit"),
        ),
    ),
    FunctionTask(
        "returns the running totals of `values`, each multiplied by {k}",
        """
        total, found = 0, []
        for value in values:
            total += value
            found.append({k} * total)
        return found
        """,
        (
            ("{k} * total", "{k} * value", "it multiplies the values, not the totals"),
            ("total += value", "total += {k} + value", "it adds {k} to each value too"),
            ("{k} * total", "{k} + total", "it adds {k} instead of multiplying"),
        ),
    ),
    FunctionTask(
        "returns whether any two neighbours in `values` differ by more than {k}",
        """
        for one, other in zip(values, values[1:]):
            if abs(one - other) > {k}:
                return True
        return False
        """,
        (
            ("abs(one - other)", "(one - other)", "it misses differences in one direction"),
            ("> {k}", ">= {k}", "a difference of exactly {k} counts"),
            ("return False", "return True", "it is always true"),
        ),
    ),
)
_LEAST = 2
"""The smallest constant: with 1 some faults are none."""
_NAMES = ("process", "solve", "compute", "answer", "work", "handle")


class CodeValidationConfig(TextScenarioConfig):
    """Functions of a few lines, half of them with a fault."""

    kind: Literal["code_validation"]
    """Short Python functions, right or with a fault."""
    largest: Positive
    """The largest constant in a task: more of them make more different questions."""
    train_size: Positive
    """The number of questions to learn from."""
    test_size: Positive
    """The number of questions of tests; none of them is in training."""

    def problems(self) -> Iterator[str]:
        """Yield a problem if there are too few different questions."""
        most = len(_TASKS) * len(_NAMES) * (self.largest - _LEAST + 1)
        if self.train_size + self.test_size > most // 2:
            yield (
                f"'train_size' and 'test_size' ask for {self.train_size + self.test_size} questions, but"
                f" there are {most} functions and half of them are kept apart; raise 'largest', or lower them"
            )


@register("text_scenario", "code_validation")
class CodeValidation(TextScenario):
    """A task, a function and the question whether it is right; the fault is in the column `solution`."""

    Config = CodeValidationConfig
    config: CodeValidationConfig

    def make_datasets(self, seed: int) -> TextDatasets:
        """Return the questions; no function of the tests, right or wrong, is in training."""
        config, random = self.config, Random(derive(seed, "text/code"))
        every = [
            (task, name, k)
            for task in _TASKS
            for name in _NAMES
            for k in range(_LEAST, config.largest + 1)
        ]
        if len(every) < config.train_size + config.test_size:
            raise ConfigError("'scenario': there are too few different functions; raise 'largest'")
        chosen = random.sample(every, config.train_size + config.test_size)
        labels = [i % 2 for i in range(len(chosen))]
        random.shuffle(labels)
        rows = [make_row(*one, label, random) for one, label in zip(chosen, labels, strict=True)]
        size = config.train_size
        return TextDatasets(
            train=_dataset(rows[:size], labels[:size]), test=_dataset(rows[size:], labels[size:])
        ).check()

    def demonstrate(
        self, agent: str, row: Mapping[str, str], label: int, *, decides: bool, random: Random
    ) -> str | int:
        """Return a random decision, or what a prover knows of the function."""
        return random.randrange(2) if decides else row["solution"]


def make_row(task: FunctionTask, name: str, k: int, label: int, random: Random) -> dict[str, str]:
    """Return the columns of a question: a function that is right (1) or has one fault (0)."""
    body, solution = task.body, "The function is right."
    if label == 0:
        piece, changed, reason = random.choice(task.faults)
        body = body.replace(piece, changed, 1)
        solution = f"The function is wrong: {reason}.".replace("{k}", str(k))
    asked = task.asked.replace("{k}", str(k))
    lines = textwrap.indent(textwrap.dedent(body).strip("\n").rstrip(), "    ").replace(
        "{k}", str(k)
    )
    code = f"def {name}(values):\n{lines}"
    question = (
        f"A function should be written that {asked}.\n\n{code}\n\nClaim: it does what is asked."
    )
    return {"question": question, "asked": asked, "code": code, "solution": solution}


def _dataset(rows: list[dict[str, str]], labels: list[int]) -> TextDataset:
    columns = {name: [row[name] for row in rows] for name in rows[0]} if rows else {}
    return TextDataset(columns, labels)
