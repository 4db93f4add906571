"""Train a classifier of handwritten digits, with a callback; resume after an interruption."""

from __future__ import annotations

import ludus


class CountEpochs:
    """A callback with state: its count is saved in checkpoints."""

    def __init__(self) -> None:
        self.count = 0

    def after_epoch(self) -> None:
        """Count the epoch."""
        self.count += 1

    def state_dict(self) -> dict[str, int]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.count = state["count"]


def main() -> None:
    """Train for a few epochs and print the result."""
    config = ludus.example("supervised", name="digits-example", max_epochs=12)
    trainer = ludus.Trainer(config)
    counter = CountEpochs()
    trainer.add(counter)
    result = trainer.fit(resume=True)
    print(f"{result.status} after {counter.count} epochs; best {result.best}")


if __name__ == "__main__":
    main()
