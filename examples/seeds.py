"""Several seeds of one config: their scores, the mean with its interval, and the curves in a frame."""

import ludus

config = ludus.example(
    "supervised", name="digits", max_epochs=2, **{"learning_rate_schedule.warmup_steps": 0}
)
# jobs=2 would train two at once, in processes of their own. Run it again: it is done already.
result = ludus.train_seeds(config, "0-2")
for seed, run in result.runs.items():
    print(f"seed {seed}: {run.status}, {result.metric} {run.score:.4f} in {run.run_dir}")

assert result.score is not None
print(f"mean {result.score.mean:.4f}, from {result.score.low:.4f} to {result.score.high:.4f}")

# The same as pandas frames, from the files of the runs.
results = ludus.results("runs")
print(results.runs[["seed", "score", "epoch", "optimizer.learning_rate"]])
curves = results.curves("train/epoch_loss")
print(curves.groupby("epoch").value.agg(["mean", "std"]))
