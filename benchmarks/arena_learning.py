"""Balance a pole with PPO of the arena, one agent in a parallel env, and with PPO of the rl family.

Both have the same networks, hyper-parameters and number of steps. The score is the mean return of the
evaluations in the last quarter of the run, 20 greedy episodes each: near the top one evaluation is noise.

The curves go to arena-learning-curves.json in the current directory.
"""

from benchmarks._harness import Case, Role, Row
from benchmarks._seeds import over_seeds, score_rows

ROUNDS = 5
"""How many seeds, unless the command line says otherwise."""


def run(rounds: int) -> list[Row]:
    """Return the returns, the rounds being seeds 0, 1, ..."""
    cases = [_case("arena", "ludus"), _case("rl", "peer")]
    return score_rows(over_seeds(cases, rounds, "arena-learning-curves.json"))


def _case(family: str, role: Role) -> Case:
    return Case(
        work="CartPole-v1, 43,008 steps",
        system=f"ludus {family}",
        unit="return",
        role=role,
        module="benchmarks._arena_learning",
        function=f"by_{family}",
        requires=("torchrl", "gymnasium"),
        is_larger_better=True,
    )
