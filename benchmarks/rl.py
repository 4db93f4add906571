"""Train DQN, PPO and SAC, and count env steps a second, in ludus and in its peers.

The works are the same everywhere (`_rl_work.py`): envs of Gymnasium stepped in the process that
learns, the same networks, batches, epochs and number of gradient steps for each env step, Adam,
the CPU. Every system is used as its documentation or its own examples show, without evaluation,
without logs on disk and without a progress bar. What comes before the steady state (random steps,
the first updates, anything compiled) is trained before the clock starts.

What a library does by itself is left as it is: SB3 clips the gradients of DQN and keeps a monitor
on every env, Tianshou looks for NaN in its buffer after every collection. TorchRL's example of DQN
collects 1,000 steps and then makes all their updates, which is faster than an update every few
steps, so it is shown both ways. TorchRL's examples can compile their update, so that is shown too.
CleanRL's PPO, a script, runs where the variable CLEANRL names a checkout.
"""

from benchmarks import _rl_cleanrl
from benchmarks._harness import Case, Role, Row, measure
from benchmarks._rl_work import WORKS

BASELINE = "sb3"


def run(rounds: int) -> list[Row]:
    """Return env steps a second in the steady state, for every system that is installed."""
    cases = []
    for work, todo in WORKS.items():
        cases.append(_peer(work, "sb3", "stable_baselines3"))
        cases.append(_peer(work, "tianshou", "tianshou"))
        cases.append(_peer(work, "torchrl", "torchrl"))
        if todo.kind == "sac":
            # Elsewhere its compiled update is no faster.
            cases.append(_peer(work, "torchrl", "torchrl", name="torchrl, compiled", compile=True))
        if todo.kind == "dqn":
            cases.append(
                _peer(
                    work,
                    "torchrl",
                    "torchrl",
                    name="torchrl, 1000 a batch",
                    steps_per_batch=1_000,
                )
            )
        if todo.kind == "ppo":
            cases.append(_peer(work, "skrl", "skrl"))
            if _rl_cleanrl.is_here():
                cases.append(_peer(work, "cleanrl", "tyro"))
        cases.append(_ludus(work, "ludus, not compiled", engine="tape"))
        cases.append(_ludus(work, "ludus", engine="compiled"))
        if todo.kind == "sac":
            cases.append(_ludus(work, "ludus, bf16", engine="compiled", precision="bf16"))
    return measure(cases, rounds, baseline=BASELINE)


def _peer(
    work: str,
    module: str,
    distribution: str,
    *,
    name: str | None = None,
    **options: bool | int,
) -> Case:
    """Return the case of one peer, in its plain way or with options of its own."""
    return _case(
        work,
        name or module,
        "peer",
        module=f"benchmarks._rl_{module}",
        function="rate",
        arguments={"work": work, **options},
        requires=(distribution, "gymnasium"),
    )


def _ludus(work: str, system: str, *, engine: str, precision: str = "fp32") -> Case:
    """Return the case of ludus in one of its ways."""
    todo = WORKS[work]
    return _case(
        work,
        system,
        "ludus",
        module="benchmarks._rl_ludus",
        function="ludus_rate",
        arguments={
            "kind": todo.kind,
            "num_envs": todo.num_envs,
            "engine": engine,
            "precision": precision,
        },
        requires=("gymnasium",),
    )


def _case(
    work: str,
    system: str,
    role: Role,
    *,
    module: str,
    function: str,
    arguments: dict[str, bool | int | str],
    requires: tuple[str, ...],
) -> Case:
    return Case(
        work=work,
        system=system,
        unit="env steps/s",
        role=role,
        module=module,
        function=function,
        arguments=arguments,
        requires=requires,
        is_larger_better=True,
    )
