"""Learn each task of the learning benchmark with ludus."""


def learn(task: str, seed: int) -> dict[str, float | None]:
    """Return the run's mean return at its end, and its training seconds until the task's goal.

    The seconds are None where the task has no goal or the run has not come to it.
    """
    raise NotImplementedError("left out")
