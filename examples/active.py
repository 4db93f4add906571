"""Active learning on digits: margin sampling compared with uniform sampling.

python examples/active.py
"""

import ludus


def accuracy(strategy: str, seed: int) -> float:
    """Return the test accuracy after 40 labels."""
    section = {"kind": strategy} if strategy == "uniform" else {"kind": strategy, "shortlist": None}
    config = ludus.example(
        "active", max_rounds=3, seed=seed, strategy=section, **{"settings.display": "none"}
    )
    trainer = ludus.ActiveTrainer(config)
    trainer.fit(name=f"{strategy}-{seed}")
    metrics = trainer.evaluate(trainer.evaluators["test"])
    return float(metrics["test/accuracy"])


def main() -> None:
    """Compare two query strategies over two seeds."""
    for strategy in ("uniform", "margin"):
        found = [accuracy(strategy, seed) for seed in range(2)]
        print(strategy, [f"{one:.3f}" for one in found])


if __name__ == "__main__":
    main()
