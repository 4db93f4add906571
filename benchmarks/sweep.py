"""Time a sweep: many trials of a one-second job on two workers, and one ask and tell after a thousand trials.

The job sleeps, so that a busy machine does not hide what the sweep itself costs. `ludus` is everything from
`Sweeper(...).sweep()` to its result: two worker processes that import torch, a run directory with an exact
checkpoint for each trial, a durable journal. Optuna's own loop calls a function that sleeps as long and keeps
nothing but its study: in threads of one process, and in two processes that share a journal file or SQLite.
Ray Tune has Optuna's sampler and keeps the results of each trial in a folder; the start of Ray is counted, as
it is where ludus runs on Ray.
"""

import multiprocessing
import random
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks._harness import Case, Role, Row, measure
from benchmarks._sweep_job import JOB_SECONDS, NUM_STEPS, STEP_SECONDS, score

ROUNDS = 1
NUM_TRIALS, NUM_WORKERS = 100, 2
NUM_TOLD, NUM_TIMED = 1_000, 40
IDEAL_SECONDS = NUM_TRIALS * JOB_SECONDS / NUM_WORKERS
OPTUNA, RAY = ("optuna",), ("ray",)
LOCAL = {"kind": "local", "workers": NUM_WORKERS, "hang_seconds": None, "memory_gb": None}


def run(rounds: int) -> list[Row]:
    """Return wall time over the ideal, and CPU time of one ask and tell."""
    many = f"{NUM_TRIALS} trials of {JOB_SECONDS:g} s, {NUM_WORKERS} workers"
    one = f"ask and tell at trial {NUM_TOLD:,}"
    return measure(
        [
            _case(many, "ludus", "_ludus", unit="x ideal"),
            _case(many, "ludus, asha", "_ludus_asha", unit="x ideal"),
            _case(many, "ludus, ray", "_ludus_ray", unit="x ideal", requires=RAY),
            _case(many, "Ray Tune", "_ray_tune", role="peer", unit="x ideal", requires=RAY),
            _case(many, "optuna, threads", "_optuna_threads", role="peer", unit="x ideal"),
            _case(many, "optuna, journal", "_optuna_journal", role="peer", unit="x ideal"),
            _case(many, "optuna, SQLite", "_optuna_sqlite", role="peer", unit="x ideal"),
            _case(one, "ludus", "_ask_ludus", unit="CPU ms"),
            _case(one, "optuna, memory", "_ask_optuna", role="peer", unit="CPU ms"),
        ],
        rounds,
    )


def _case(
    work: str, system: str, function: str, *, unit: str, role: Role = "ludus", requires: tuple[str, ...] = ()
) -> Case:  # fmt: skip
    needed = (*OPTUNA, *requires)
    return Case(work, system, unit, role, module=__name__, function=function, requires=needed)


def _ludus() -> float:
    return _swept({"kind": "none"})


def _ludus_asha() -> float:
    """Let runs wait for a decision at each step; none is ended, as the rung is out of reach."""
    return _swept(
        {"kind": "asha", "counter": "opt_steps", "first_rung": NUM_STEPS + 1, "reduction": 2}
    )


def _ludus_ray() -> float:
    """Run the same on a cluster of Ray, whose start and end are counted."""
    return _swept(
        {"kind": "none"}, {**LOCAL, "kind": "ray", "address": None, "gpus_per_worker": 0.0}
    )


def _ray_tune() -> float:
    from benchmarks._sweep_ray_tune import tuned

    return tuned(NUM_TRIALS, NUM_WORKERS) / IDEAL_SECONDS


def _swept(pruner: dict[str, Any], engine: Mapping[str, Any] = LOCAL) -> float:
    import ludus
    from ludus.config import strict_yaml
    from ludus.config.migrations import VERSION
    from ludus.config.registry import load_plugin

    load_plugin("benchmarks._sweep_job")
    settings = ludus.example("supervised").settings.model_dump()
    settings |= {"display": "none", "loggers": [], "device": "cpu"}
    base = {
        "version": VERSION,
        "kind": "sleep_a_second",
        "name": "job",
        "seed": 0,
        "x": 0.0,
        "y": 0.0,
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "job.yaml")
        path.write_text(strict_yaml.dump({**base, "settings": settings}))
        sweeper = ludus.Sweeper({**_file(str(path)), "pruner": pruner, "engine": dict(engine)})
        started = time.perf_counter()
        result = sweeper.sweep(root=folder, show_on="none")
        seconds = time.perf_counter() - started
    assert sum(trial.state == "complete" for trial in result.trials) == NUM_TRIALS
    return seconds / IDEAL_SECONDS


def _file(base: str) -> dict[str, Any]:
    from ludus.config.migrations import VERSION

    within = {"kind": "range", "low": 0.0, "high": 1.0, "step": None, "when": None}
    return {
        "version": VERSION, "kind": "sweep", "name": "bench", "seed": 0, "base": base, "fixed": {},
        "space": {"x": within, "y": within},
        "metric": {"name": "job/score", "direction": "max", "take": "last", "confidence": 0.95},
        "seeds": [0], "sampler": {"kind": "tpe", "startup_trials": 10, "multivariate": True},
        "seed_pruner": {"kind": "none"}, "deterministic": False, "batch_size": None,
        "budget": {
            "max_trials": NUM_TRIALS, "max_env_steps": None, "max_opt_steps": None, "max_hours": None
        },
    }  # fmt: skip


def _objective(trial: Any) -> float:
    x, y = trial.suggest_float("x", 0.0, 1.0), trial.suggest_float("y", 0.0, 1.0)
    for _ in range(NUM_STEPS):
        time.sleep(STEP_SECONDS)
    return score(x, y)


def _optuna_threads() -> float:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
    started = time.perf_counter()
    study.optimize(_objective, n_trials=NUM_TRIALS, n_jobs=NUM_WORKERS)
    return (time.perf_counter() - started) / IDEAL_SECONDS


def _optuna_journal() -> float:
    return _in_processes("journal")


def _optuna_sqlite() -> float:
    return _in_processes("sqlite")


def _in_processes(kind: str) -> float:
    """Return the time of processes that share a storage, each with its share of the trials."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        optuna.create_study(
            study_name="bench", direction="maximize", storage=_storage(kind, folder)
        )
        started = time.perf_counter()
        workers = [
            context.Process(target=_optimize, args=(kind, folder)) for _ in range(NUM_WORKERS)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        seconds = time.perf_counter() - started
        study = optuna.load_study(study_name="bench", storage=_storage(kind, folder))
        assert len(study.trials) == NUM_TRIALS
    return seconds / IDEAL_SECONDS


def _storage(kind: str, folder: str) -> Any:
    from optuna.storages import JournalStorage, RDBStorage
    from optuna.storages.journal import JournalFileBackend

    if kind == "sqlite":
        return RDBStorage(f"sqlite:///{folder}/study.db")
    return JournalStorage(JournalFileBackend(f"{folder}/journal.log"))


def _optimize(kind: str, folder: str) -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.load_study(study_name="bench", storage=_storage(kind, folder))
    study.optimize(_objective, n_trials=NUM_TRIALS // NUM_WORKERS)


def _ask_ludus() -> float:
    """Return the CPU time of one ask and one tell with their records in the journal."""
    from ludus.judge.confidence import mean_interval
    from ludus.store.local import LocalStorage
    from ludus.sweep.record import SweepRecord
    from ludus.sweep.samplers._optuna import Tpe
    from ludus.sweep.space import Space
    from ludus.sweep.study import Study
    from ludus.sweep.trials import SweepTrial
    from ludus.sweep.variables import Choice, LogRange, Range

    space = Space(
        {
            "x": Range(kind="range", low=-1.0, high=1.0, step=None, when=None),
            "y": LogRange(kind="log_range", low=1e-4, high=1.0, when=None),
            "z": Choice(kind="choice", values=[1, 2, 3], when=None),
        }
    )
    config = Tpe.Config(kind="tpe", startup_trials=10, multivariate=True)
    study = Study(Tpe(config, space), seed=0, mode="min")
    with tempfile.TemporaryDirectory() as folder:
        storage = LocalStorage(folder)
        record = SweepRecord(storage)
        trials = {}
        for number, point in enumerate(_points(NUM_TOLD)):
            found = mean_interval([_value(point)], confidence=0.95)
            trials[number] = SweepTrial(
                number, point, number, state="complete", score=found, is_told=True
            )
        study.rebuild(trials, [])
        # The first one counts the keys that all trials share; a sweep does so once.
        study.tell(_ended(SweepTrial(NUM_TOLD, study.ask(NUM_TOLD), NUM_TOLD)))
        started = time.process_time()
        for number in range(NUM_TOLD + 1, NUM_TOLD + 1 + NUM_TIMED):
            trial = SweepTrial(number, study.ask(number), number)
            record.asked(trial)
            study.tell(_ended(trial))
            record.told(trial, 0.0)
        seconds = time.process_time() - started
        storage.close()
    return 1000 * seconds / NUM_TIMED


def _ended(trial: Any) -> Any:
    from ludus.judge.confidence import mean_interval

    trial.state, trial.score = "complete", mean_interval([_value(trial.point)], confidence=0.95)
    return trial


def _ask_optuna() -> float:
    """Return the same of Optuna's study in memory, whose sampler is kept."""
    import optuna
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0))
    over = {
        "x": FloatDistribution(-1.0, 1.0),
        "y": FloatDistribution(1e-4, 1.0, log=True),
        "z": CategoricalDistribution([1, 2, 3]),
    }
    for point in _points(NUM_TOLD):
        study.add_trial(
            optuna.trial.create_trial(value=_value(point), params=point, distributions=over)
        )
    study.tell(study.ask(over), 0.0)
    started = time.process_time()
    for _ in range(NUM_TIMED):
        trial = study.ask(over)
        study.tell(trial, _value(trial.params))
    return 1000 * (time.process_time() - started) / NUM_TIMED


def _points(count: int) -> list[dict[str, Any]]:
    chance = random.Random(0)
    return [
        {
            "x": chance.uniform(-1, 1),
            "y": 10 ** chance.uniform(-4, 0),
            "z": chance.choice([1, 2, 3]),
        }
        for _ in range(count)
    ]


def _value(point: Any) -> float:
    return float(point["x"] ** 2 + point["y"] + point["z"])
