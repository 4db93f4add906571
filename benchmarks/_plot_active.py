"""Draw accuracies by labels, and labels to an accuracy: python -m benchmarks._plot_active CURVES.json OUT.svg

CURVES.json is what the benchmark active_learning leaves.
"""

import json
import statistics
import sys
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("svg")

import matplotlib.pyplot as plt

from benchmarks.active_learning import BASELINE, OURS, labels_to

COLOURS = {
    "uniform": "#6b6b6b",
    "margin": "#0b6e4f",
    "entropy": "#c0722a",
    "badge": "#4a78b5",
    "core_set": "#8a4f9e",
}
MARKS = {"ludus": "o", "scikit-activeml": "s", "modAL": "^", "baal": "D"}


def main() -> None:
    """Draw a row of panels for each table: the median over the seeds with its quartiles."""
    curves = json.loads(Path(sys.argv[1]).read_text())
    plt.rcParams["svg.hashsalt"] = "ludus"
    figure, panels = plt.subplots(
        len(curves), 2, figsize=(11, 3.6 * len(curves)), layout="constrained", squeeze=False
    )
    for (left, right), (table, systems) in zip(panels, curves.items(), strict=True):
        target = statistics.mean(curve[-1][1] for curve in systems[OURS][BASELINE])
        _draw_accuracies(left, table, systems[OURS], target)
        _draw_labels(right, table, systems, target)
        for panel in (left, right):
            panel.spines[["top", "right"]].set_visible(False)
            panel.tick_params(labelsize=8)
    figure.savefig(sys.argv[2], metadata={"Date": None})


def _draw_accuracies(
    panel: plt.Axes, table: str, strategies: dict[str, list[list[list[float]]]], target: float
) -> None:
    bottom = 100.0
    for strategy, runs in strategies.items():
        curves = np.asarray(runs, float)
        labels, accuracies = curves[0, :, 0], 100 * curves[:, :, 1]
        low, middle, high = np.quantile(accuracies, (0.25, 0.5, 0.75), axis=0)
        colour = COLOURS[strategy]
        panel.plot(labels, middle, color=colour, label=strategy, lw=1.6, marker="o", ms=2.5)
        panel.fill_between(labels, low, high, color=colour, alpha=0.13, lw=0)
        # The first labels are the same for all, so what follows them is looked at more closely.
        bottom = min(bottom, low[1] - 2)
    panel.set_ylim(bottom=bottom)
    panel.axhline(100 * target, color="#999999", lw=0.8, ls=":")
    num_seeds = len(next(iter(strategies.values())))
    panel.set_title(f"{table}: ludus, median and quartiles of {num_seeds} seeds", fontsize=10)
    panel.set_xlabel("labels", fontsize=9)
    panel.set_ylabel("test accuracy, %", fontsize=9)
    panel.legend(fontsize=8, frameon=False, loc="lower right")


def _draw_labels(
    panel: plt.Axes,
    table: str,
    systems: dict[str, dict[str, list[list[list[float]]]]],
    target: float,
) -> None:
    names = list(systems[OURS])
    # A file that is not complete yet has fewer seeds of some; all are compared on those they share.
    num_seeds = min(len(runs) for strategies in systems.values() for runs in strategies.values())
    for at, (system, strategies) in enumerate(systems.items()):
        for strategy, runs in strategies.items():
            needed = [labels_to(target, curve) for curve in runs[:num_seeds]]
            low, middle, high = np.quantile(needed, (0.25, 0.5, 0.75))
            height = names.index(strategy) + 0.18 * (at - (len(systems) - 1) / 2)
            colour = COLOURS[strategy]
            panel.plot([low, high], [height, height], color=colour, lw=2, alpha=0.45)
            panel.plot(middle, height, MARKS[system], color=colour, ms=5.5)
    for system in systems:
        panel.plot([], [], MARKS[system], color="#444444", ms=5.5, label=system)
    panel.set_yticks(range(len(names)), names)
    panel.invert_yaxis()
    panel.set_xlabel(f"labels to {target:.1%}", fontsize=9)
    panel.set_title(f"{table}: median and quartiles of {num_seeds} seeds", fontsize=10)
    panel.legend(fontsize=8, frameon=False, loc="upper left")


if __name__ == "__main__":
    main()
