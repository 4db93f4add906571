"""Two agents under nip on pairs of graphs: PPO in ludus, and with TorchRL's own collector and trainer.

The networks, the pairs, the protocol and the numbers of steps are the same. TorchRL has its collector,
buffer, GAE, clipped loss and Trainer, on an env that is stepped for all episodes at once; ludus has its whole
trainer, with log, display and checkpoints. A verifier decides in the last round only, so that every frame of
either is a frame of an episode. The rates count frames: steps of an env, in each of which one agent has its
turn.
"""

from benchmarks._harness import BenchmarkError, Case, Row, measure

ROUNDS = 3


def run(rounds: int, device: str = "cpu") -> list[Row]:
    """Return frames a second, for rollouts with updates and for rollouts alone."""
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise BenchmarkError("--device is cuda, but torch sees no CUDA device here; use cpu")
    cases = []
    for work, envs in (("256 episodes", 256), ("2,048 episodes", 2048)):
        for only_rollouts in (False, True):
            what = f"{work}, {'rollouts alone' if only_rollouts else 'rollouts and updates'}"
            arguments = {"num_envs": envs, "device": device, "only_rollouts": only_rollouts}
            cases += [
                Case(what, "torchrl", "frames/s", "peer", "benchmarks._arena_torchrl", "rate",
                     arguments, ("torchrl",), is_larger_better=True),
                Case(what, "ludus", "frames/s", "ludus", "benchmarks._arena_ludus", "rate",
                     {**arguments, "engine": "auto"}, ("torchrl",), is_larger_better=True),
            ]  # fmt: skip
            if not only_rollouts:
                cases.append(
                    Case(what, "ludus, engine: compiled", "frames/s", "ludus", "benchmarks._arena_ludus",
                         "rate", {**arguments, "engine": "compiled"}, ("torchrl",),
                         is_larger_better=True)
                )  # fmt: skip
    return measure(cases, rounds)
