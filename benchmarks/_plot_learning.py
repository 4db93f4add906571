"""Draw the curves of a learning benchmark: python -m benchmarks._plot_learning CURVES.json OUT.svg [X] [Y]

X and Y say what the axes are.
"""

import json
import sys
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("svg")

import matplotlib.pyplot as plt

COLOURS = {
    "ludus": "#0b6e4f", "ludus ppo": "#4a78b5", "sb3": "#c0722a",
    "population": "#0b6e4f", "random": "#c0722a", "random, cosine": "#4a78b5",
}  # fmt: skip
LABELS = ("env steps", "mean return of the latest training episodes")
NUM_POINTS = 60


def main() -> None:
    """Draw a panel for each task: the mean over the seeds and the range from worst to best."""
    curves = json.loads(Path(sys.argv[1]).read_text())
    rows = min(2, len(curves))
    columns = -(-len(curves) // rows)
    size = (13, 6) if rows == 2 else (6.5, 4)
    figure, panels = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    plt.rcParams["svg.hashsalt"] = "ludus"
    for panel, (task, systems) in zip(panels.flat, curves.items(), strict=False):
        for system, runs in systems.items():
            _draw(panel, system, [np.asarray(run, float) for run in runs if run])
        panel.set_title(task, fontsize=10)
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(labelsize=8)
        panel.locator_params("x", nbins=5)
        panel.legend(fontsize=8, frameon=False, loc="best")
    for panel in list(panels.flat)[len(curves) :]:
        panel.set_axis_off()
    across, up = sys.argv[3:5] if len(sys.argv) > 4 else LABELS
    figure.supxlabel(across, fontsize=9)
    figure.supylabel(up, fontsize=9)
    figure.savefig(sys.argv[2], metadata={"Date": None})


def _draw(panel: plt.Axes, system: str, runs: list[np.ndarray]) -> None:
    if not runs:
        return
    start, end = max(run[0, 0] for run in runs), min(run[-1, 0] for run in runs)
    steps = np.linspace(start, end, NUM_POINTS)
    returns = np.stack([np.interp(steps, run[:, 0], run[:, 1]) for run in runs])
    colour = COLOURS[system]
    panel.plot(steps, returns.mean(0), color=colour, label=f"{system} ({len(runs)} seeds)")
    panel.fill_between(steps, returns.min(0), returns.max(0), color=colour, alpha=0.15, lw=0)


if __name__ == "__main__":
    main()
