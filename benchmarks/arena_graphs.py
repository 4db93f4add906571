"""How many pairs of graphs are told apart: computed for a verifier that asks, or learned from labels.

`computed` is the highest accuracy of a verifier of k layers on 1,000 test pairs against a prover that always
gives the answer hardest to refute: alone, with questions at random, and with the best question. `learned` is
the accuracy of graph networks of 0 to 5 layers on 1,000 test pairs after 300 updates of 256 pairs, and
what they would have if they rejected just the pairs that so many rounds of colour refinement tell apart.
"""

from collections.abc import Iterator

from benchmarks._arena_graphs import SIZES
from benchmarks._harness import Case, Row
from benchmarks._seeds import over_seeds, score_rows

ROUNDS = 3
"""How many seeds, unless the command line says otherwise."""


def run(rounds: int, jobs: int = 1) -> list[Row]:
    """Return the accuracies, the rounds being seeds 0, 1, ..."""
    found = over_seeds(_cases(), rounds, "arena-graphs-curves.json", jobs)
    rows = {}
    for case, answers in found.items():
        for name in answers[0]["scores"]:
            named = Case(
                work=f"{case.work}, {name}",
                system=case.system,
                unit=case.unit,
                role=case.role,
                module=case.module,
                function=case.function,
            )
            rows[named] = [{"score": answer["scores"][name]} for answer in answers]
    return score_rows(rows)


def _cases() -> Iterator[Case]:
    for name in SIZES:
        yield _case(f"computed, {name} nodes", "computed", sizes=name)
    yield _case("learned", "learned")


def _case(work: str, function: str, **arguments: str) -> Case:
    return Case(
        work=work,
        system="ludus",
        unit="accuracy",
        role="ludus",
        module="benchmarks._arena_graphs",
        function=function,
        arguments=arguments,
        requires=("torchrl",),
        is_larger_better=True,
    )
