"""Active learning on digits: a network asks for the labels it needs; uniform sampling beside it.

python examples/active.py
"""

import ludus


def accuracy(strategy: str, seed: int) -> float:
    """Return the accuracy on test data after 40 labels."""
    section = {"kind": strategy} if strategy == "uniform" else {"kind": strategy, "shortlist": None}
    config = ludus.example(
        "active", max_rounds=3, seed=seed, strategy=section, **{"settings.display": "none"}
    )
    trainer = ludus.ActiveTrainer(config)
    trainer.fit(name=f"{strategy}-{seed}")
    metrics = trainer.evaluate(trainer.evaluators["test"])
    return float(metrics["test/accuracy"])


def main() -> None:
    """Compare two strategies over some seeds."""
    for strategy in ("uniform", "margin"):
        found = [accuracy(strategy, seed) for seed in range(2)]
        print(strategy, [f"{one:.3f}" for one in found])


if __name__ == "__main__":
    main()
