"""The trials of the sweep benchmark by Ray Tune: a function that sleeps and reports, and Optuna's sampler."""

import os
import tempfile
import time

from benchmarks._sweep_job import NUM_STEPS, STEP_SECONDS, score


def tuned(num_trials: int, num_workers: int) -> float:
    """Return the seconds from the start of Ray to the last result."""
    # It listens on this machine alone, as ludus has it.
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    os.environ["RAY_AIR_NEW_OUTPUT"] = "0"
    started = time.perf_counter()
    import ray
    from ray import tune
    from ray.tune.search.optuna import OptunaSearch

    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        ray.init(
            address="local", num_cpus=num_workers, num_gpus=0, include_dashboard=False,
            log_to_driver=False, logging_level="ERROR", _temp_dir=f"{folder}/ray",
        )  # fmt: skip
        tuner = tune.Tuner(
            _objective,
            param_space={"x": tune.uniform(0.0, 1.0), "y": tune.uniform(0.0, 1.0)},
            tune_config=tune.TuneConfig(
                metric="score", mode="max", num_samples=num_trials, search_alg=OptunaSearch(seed=0),
                max_concurrent_trials=num_workers, reuse_actors=True,
            ),
            run_config=tune.RunConfig(storage_path=f"{folder}/results", verbose=0),
        )  # fmt: skip
        results = tuner.fit()
        seconds = time.perf_counter() - started
        assert len(results) == num_trials
        assert not results.errors
        ray.shutdown()
    return seconds


def _objective(config: dict[str, float]) -> None:
    from ray import tune

    for _ in range(NUM_STEPS):
        time.sleep(STEP_SECONDS)
        tune.report({"score": score(config["x"], config["y"])})
