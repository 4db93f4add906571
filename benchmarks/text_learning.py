"""Agents of text learn the majority task: expert iteration, MALT and policy gradients, on tiny models.

Byte-level Llamas of 99,000 weights that were taught the form of an answer on demonstrations, and nothing
else: a verifier that sees all of 11 letters and decides alone, one that sees a single letter and reads a
prover who sees all (`pure_text_ei.yaml`), one of three letters with a prover that is paid for being believed,
MALT, and policy gradients alone. From one letter nobody is right about more than 0.667 of the strings.

The score is the accuracy of the sampled answers of the last iteration, on training questions before their
update. The curves go to text-learning-curves.json in the current directory:
`python -m benchmarks._plot_text text-learning-curves.json FILE.svg` draws them.
"""

from collections.abc import Iterator

from benchmarks._harness import Case, Row
from benchmarks._seeds import over_seeds, score_rows

ROUNDS = 5
"""How many seeds, unless the command line says otherwise."""


def run(rounds: int, jobs: int = 1) -> list[Row]:
    """Return the accuracies, the rounds being seeds 0, 1, ..."""
    return score_rows(over_seeds(_cases(), rounds, "text-learning-curves.json", jobs))


def _cases() -> Iterator[Case]:
    for work, function in {
        "alone, expert iteration": "alone",
        "with a prover, expert iteration": "with_prover",
        "with an adversarial prover, expert iteration": "with_adversary",
        "with a prover, MALT": "malt",
        "alone, policy gradients": "policy_gradients",
    }.items():
        yield Case(
            work=work,
            system="ludus",
            unit="accuracy",
            role="ludus",
            module="benchmarks._text_learning",
            function=function,
            requires=("aiohttp",),
            is_larger_better=True,
        )
