"""Draw accuracies by iteration: python -m benchmarks._plot_text CURVES.json OUT.svg

CURVES.json is what the benchmark text_learning leaves.
"""

import json
import sys
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("svg")

import matplotlib.pyplot as plt

COLOURS = ("#c0722a", "#0b6e4f", "#8a4f9e", "#4a78b5", "#b8a200")
CEILING = 2 / 3


def main() -> None:
    """Draw each seed thin and the median thick."""
    curves = json.loads(Path(sys.argv[1]).read_text())
    plt.rcParams["svg.hashsalt"] = "ludus"
    figure, panel = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
    for colour, (work, systems) in zip(COLOURS, curves.items(), strict=False):
        runs = systems["ludus"]
        for run in runs:
            panel.plot(*zip(*run, strict=True), color=colour, lw=0.6, alpha=0.35)
        length = min(len(run) for run in runs)
        every = np.asarray([run[:length] for run in runs], float)
        middle = np.median(every[:, :, 1], axis=0)
        panel.plot(every[0, :, 0], middle, color=colour, lw=2.0, label=work)
    panel.axhline(CEILING, color="#6b6b6b", lw=1.0, ls="--", label="the most from one letter")
    panel.set_ylim(0.2, 1.02)
    panel.set_xlabel("iteration", fontsize=9)
    panel.set_ylabel("accuracy of sampled answers", fontsize=9)
    panel.spines[["top", "right"]].set_visible(False)
    panel.tick_params(labelsize=8)
    panel.legend(fontsize=8, frameon=False, loc="lower right")
    figure.savefig(sys.argv[2], metadata={"Date": None})


if __name__ == "__main__":
    main()
