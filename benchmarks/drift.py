"""How soon a drift is noticed, how often there is none, and what retraining brings back, over seeds.

The stream is that of `ludus new stream`: five digits for 30 steps of 15 examples, then the other five. The
state is estimated every 4 steps. The model begins untrained; the entropy of what it predicts asks for the
first training, in every setting. A setting says what is measured besides. A false alarm is any later
retraining before the switch. A switch that is not noticed by the end, 30 steps later, counts 30.
"""

import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import torch

from benchmarks._harness import Row, say

ROUNDS = 5
_SWITCH, _STEPS = 30, 60
_BASELINE = {"window": 3, "deviations": 3.0, "min_rise": 0.1}
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "entropy": [],
    "entropy, ks": [{"kind": "ks", "alpha": 0.001}],
    "entropy, mmd": [{"kind": "mmd", "alpha": 0.005, "permutations": 999}],
    "entropy, ece": [{"kind": "ece", "bins": 10, "baseline": _BASELINE}],
}


def run(rounds: int) -> list[Row]:
    """Return the mean over the rounds, each with its own seed, of each setting."""
    torch.set_num_threads(1)
    found: dict[tuple[str, str, str], list[float]] = {}
    for seed in range(rounds):
        for setting, more in SETTINGS.items():
            measured = told_by(_walked(seed, more))
            say(f"seed {seed}, {setting}: {measured}")
            for (work, unit), value in measured.items():
                found.setdefault((work, setting, unit), []).append(value)
    return [
        Row(
            work,
            setting,
            statistics.mean(values),
            unit,
            max(values) - min(values),
            None,
            values=tuple(values),
        )
        for (work, setting, unit), values in sorted(found.items(), key=lambda one: one[0][0])
    ]


def told_by(lines: list[dict[str, Any]]) -> dict[tuple[str, str], float]:
    """Return what the lines of one stream come to."""
    first = next(n for n, line in enumerate(lines) if line["update"] > 0)
    trained = lines[first:]
    asked = [line["step"] for line in trained if line["retrain"]]
    noticed = min((step for step in asked if step > _SWITCH), default=_SWITCH + 30) - _SWITCH
    before = [line["accuracy"] for line in trained if line["step"] <= _SWITCH]
    # The window that holds the switch is of both kinds of digits; the next is of the new ones alone.
    after = [line for line in trained if line["step"] > _SWITCH + 4]
    return {
        ("1 noticed after", "steps"): float(noticed),
        ("2 false alarms", "a stream"): float(sum(step <= _SWITCH for step in asked)),
        ("3 right before the switch", "%"): 100 * statistics.mean(before),
        ("4 right in the first window of new digits", "%"): 100 * after[0]["accuracy"],
        ("5 right in the last window", "%"): 100 * after[-1]["accuracy"],
        ("6 retrainings", "a stream"): float(lines[-1]["update"]),
    }


def _walked(seed: int, more: list[dict[str, Any]]) -> list[dict[str, Any]]:
    from ludus.active.programs.stream import StandaloneProgram
    from ludus.active.stream.config import read_stream_config
    from ludus.active.stream.datacenter import Datacenter
    from ludus.active.stream.edge import Edge
    from ludus.active.stream.link import DirectLink
    from ludus.config.registry import example_path
    from ludus.store.local import LocalStorage

    config = read_stream_config(example_path("stream"))
    assert isinstance(config, StandaloneProgram.Config)
    first = config.edge.model_dump()["state_estimation"]["estimators"][0]
    changed = config.replace(
        **{
            "edge.seed": seed,
            "datacenter.training.seed": seed,
            "edge.state_estimation.estimators": [first, *more],
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        center = Datacenter(
            changed.datacenter, LocalStorage(root / "datacenter"), tell=lambda text: None
        )
        try:
            link, storage = DirectLink(center), LocalStorage(root / "edge")
            Edge(changed.edge, link, storage, tell=lambda text: None).run()
        finally:
            center.close()
        lines = (root / "edge/stream.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]
