"""A sweep: search for the learning rate and the size of a small network, with two seeds each."""

import ludus

# The file that `ludus new sweep` prints, with some keys changed.
config = ludus.example("sweep", name="small-digits").replace(
    base="supervised",
    fixed={"max_epochs": 2, "learning_rate_schedule": {"kind": "constant", "warmup_steps": 0}},
    space={
        "optimizer.learning_rate": {"kind": "log_range", "low": 1e-4, "high": 1e-2, "when": None},
        "model.blocks": {"kind": "choice", "values": [[8], [8, 16], [16]], "when": None},
    },
    pruner={"kind": "none"},
    engine={"kind": "inline"},  # in this process; "local" has workers
)
result = ludus.Sweeper(config).sweep(count=4, root="runs")
for row in result.table():
    print(row["trial"], row["state"], row["score"], row["point"])

assert result.best is not None
assert result.best_config is not None
print("best:", dict(result.best.point), "in", result.sweep_dir)

# Seeds by which it was not chosen say what it is worth.
fresh = ludus.Sweeper(config).train_best(2, root="runs")
assert fresh.score is not None
print(f"with {fresh.score.count} new seeds: {fresh.score.mean:.4f}")
