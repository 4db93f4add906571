"""Time how long training stands still for a checkpoint of 100 MB, in milliseconds a pause.

A pause is the time a training step takes beyond its usual time because a checkpoint falls on it,
so work that goes on in the background while later steps run does not count unless it slows them.
"""

from benchmarks._harness import Case, Row, measure

CHECKPOINT_BYTES = 100_000_000


def run(rounds: int) -> list[Row]:
    """Return the median pause of a checkpoint, for every system that has been written here."""
    return measure(
        [
            Case(
                work="pause of a 100 MB checkpoint",
                system="ludus",
                unit="ms",
                role="ludus",
                module=__name__,
                function="_ludus",
            ),
        ],
        rounds,
    )


def _ludus() -> float:
    """Time the pause in the supervised trainer of ludus."""
    raise NotImplementedError("the checkpoints of ludus are not measured yet")
