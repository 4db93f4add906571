"""Registrations of sweeps."""

from ludus.config.families import declare

declare(
    "ludus.sweep",
    categories={
        "sampler": "samplers",
        "pruner": "pruners",
        "seed_pruner": "seed_pruners",
        "sweep_engine": "engines",
    },
    needs={
        "optuna": "ludus[sweep]",
        "cmaes": "ludus[sweep]",
        "scipy": "ludus[sweep]",
        "ray": "ludus[ray]",
    },
)
