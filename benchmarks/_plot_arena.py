"""Draw accuracies by iteration: python -m benchmarks._plot_arena CURVES.json OUT.svg

CURVES.json is what the benchmark arena_proof leaves.
"""

import json
import sys
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("svg")

import matplotlib.pyplot as plt

STYLES = {
    ("with a prover", "ludus"): ("#0b6e4f", "-", "with a prover, ludus"),
    ("with a prover", "torchrl"): ("#4a78b5", "-", "with a prover, TorchRL"),
    ("with a random prover", "ludus"): ("#b8a200", "-", "with a random prover, ludus"),
    ("alone", "ludus"): ("#c0722a", "-", "alone, by PPO, ludus"),
}
LINES = {
    "supervised, prover": ("#8a4f9e", "the prover, supervised"),
    "supervised, verifier": ("#6b6b6b", "the verifier, supervised"),
}


def main() -> None:
    """Draw each seed thin and the median thick; what was learned from labels is a line across."""
    curves = json.loads(Path(sys.argv[1]).read_text())
    plt.rcParams["svg.hashsalt"] = "ludus"
    figure, panel = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
    for (work, system), (colour, style, label) in STYLES.items():
        runs = curves.get(work, {}).get(system, [])
        for run in runs:
            steps, values = zip(*run, strict=True)
            panel.plot(steps, values, color=colour, lw=0.6, alpha=0.35)
        if runs:
            length = min(len(run) for run in runs)
            every = np.asarray([run[:length] for run in runs], float)
            middle = np.median(every[:, :, 1], axis=0)
            panel.plot(every[0, :, 0], middle, color=colour, ls=style, lw=2.0, label=label)
    for work, (colour, label) in LINES.items():
        runs = curves.get(work, {}).get("ludus", [])
        if runs:
            last = float(np.median([run[-1][1] for run in runs]))
            panel.axhline(last, color=colour, lw=1.0, ls="--", label=label)
    panel.set_ylim(0.4, 1.02)
    panel.set_xlabel("iteration", fontsize=9)
    panel.set_ylabel("accuracy on pairs not learned from", fontsize=9)
    panel.spines[["top", "right"]].set_visible(False)
    panel.tick_params(labelsize=8)
    panel.legend(fontsize=8, frameon=False, loc="lower right", bbox_to_anchor=(1.0, 0.45))
    figure.savefig(sys.argv[2], metadata={"Date": None})


if __name__ == "__main__":
    main()
