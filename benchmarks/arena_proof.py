"""Learn whether two graphs are isomorphic: with a prover to ask, alone, and supervised; in ludus and TorchRL.

The shipped experiment, vanilla_ppo.yaml: a verifier of two layers asks about a node, a prover that gains by
being believed answers, the verifier decides. A random prover answers with any node. `alone` is the same
verifier without a prover, by the same PPO (protocol solo_verifier); `supervised` the solo agents, verifier
and prover, on the labels. TorchRL's collector, loss and trainer learn the first with the same networks and
settings, from bodies pretrained as long. The score is the accuracy of the last weights on 1,024 pairs, none
of which is isomorphic to one that somebody learned from or chose by.

The curves go to arena-proof-curves.json in the current directory:
`python -m benchmarks._plot_arena arena-proof-curves.json FILE.svg` draws them.
"""

from collections.abc import Iterator

from benchmarks._harness import Case, Role, Row
from benchmarks._seeds import over_seeds, score_rows

ROUNDS = 5
"""How many seeds, unless the command line says otherwise."""


def run(rounds: int, jobs: int = 1) -> list[Row]:
    """Return the test accuracies, the rounds being seeds 0, 1, ..."""
    return score_rows(over_seeds(_cases(), rounds, "arena-proof-curves.json", jobs))


def _cases() -> Iterator[Case]:
    yield _case("with a prover", "ludus", "ludus", "with_prover")
    yield _case("with a prover", "torchrl", "peer", "with_prover_by_torchrl")
    yield _case("with a random prover", "ludus", "ludus", "with_random_prover")
    yield _case("alone", "ludus", "ludus", "alone")
    yield _case("supervised, verifier", "ludus", "ludus", "supervised_verifier")
    yield _case("supervised, prover", "ludus", "ludus", "supervised_prover")


def _case(work: str, system: str, role: Role, function: str) -> Case:
    return Case(
        work=work,
        system=system,
        unit="accuracy",
        role=role,
        module="benchmarks._arena_proof",
        function=function,
        requires=("torchrl",),
        is_larger_better=True,
    )
