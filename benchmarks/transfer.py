"""Rank five pre-trained candidates by transferability, and by their accuracy once fine-tuned.

Five networks of one shape learn related tasks of digits on half of the images. For each target task every
network is scored on 100 labels of the other half, by LogME also on 30, fewer than it has features; then it
gets a new last layer, is fine-tuned on such labels three times, each time on others, and tested on the rest.
The value is Kendall's tau between the two rankings, the mean over the rounds: 1 is the same order, 0 is none,
-1 the reverse.
"""

import itertools
import statistics
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from benchmarks._harness import Row, say

ROUNDS = 5
SCORES = ("logme", "leep", "nce", "h_score", "logme of few")
_LABELS = 100
_FEW = 30
"""Fewer labels than the networks have features."""
_TUNINGS = 3
_EPOCHS = 30
_WIDTH = 48


def run(rounds: int) -> list[Row]:
    """Return tau for each target and score: the mean over the rounds, each with its own seed."""
    torch.set_num_threads(1)
    found: dict[tuple[str, str], list[float]] = {}
    for seed in range(rounds):
        inputs_ND, digits_N = _digits(seed)
        sources = {name: _pretrained(name, inputs_ND, digits_N, seed) for name in _TASKS}
        for target in _TARGETS:
            scores, accuracies = _compare(target, sources, inputs_ND, digits_N, seed)
            for kind in SCORES:
                tau = kendall(scores[kind], accuracies)
                found.setdefault((target, kind), []).append(tau)
            shown = ", ".join(f"{a:.3f}" for a in accuracies)
            say(
                f"seed {seed}, {target}: accuracies {shown}; "
                + ", ".join(f"{kind} {found[target, kind][-1]:.2f}" for kind in SCORES)
            )
    for kind in SCORES:
        found["all targets", kind] = [
            statistics.mean(found[target, kind][seed] for target in _TARGETS)
            for seed in range(rounds)
        ]
    return [
        Row(
            f"{target}: tau",
            kind,
            statistics.mean(taus),
            "tau",
            max(taus) - min(taus),
            None,
            values=tuple(taus),
        )
        for (target, kind), taus in found.items()
    ]


def kendall(one: list[float], other: list[float]) -> float:
    """Return tau-b: how many pairs are in the same order, less those in the reverse."""
    agree, first, second = 0, 0, 0
    for i, j in itertools.combinations(range(len(one)), 2):
        a, b = _sign(one[i] - one[j]), _sign(other[i] - other[j])
        agree, first, second = agree + a * b, first + a * a, second + b * b
    return agree / (first * second) ** 0.5 if first and second else 0.0


def _sign(number: float) -> int:
    return (number > 0) - (number < 0)


def _rotated(inputs_ND: Tensor) -> Tensor:
    return inputs_ND.view(-1, 8, 8).rot90(1, (1, 2)).reshape(-1, 64)


# By name: what is done to the images, and to the digits (-1 leaves an example out).
_TASKS: dict[str, Any] = {
    "ten digits": (lambda x: x, lambda y: y),
    "0 to 4": (lambda x: x, lambda y: torch.where(y < 5, y, -1)),
    "odd or even": (lambda x: x, lambda y: y % 2),
    "ten digits, rotated": (_rotated, lambda y: y),
    "ten digits, mirrored": (lambda x: x.view(-1, 8, 8).flip(2).reshape(-1, 64), lambda y: y),
}
_TARGETS: dict[str, Any] = {
    "5 to 9": (lambda x: x, lambda y: torch.where(y > 4, y - 5, -1)),
    "ten digits, noisy": (
        lambda x: x + 0.4 * torch.randn(x.shape, generator=_draws(3)),
        lambda y: y,
    ),
    "below 5 or not": (lambda x: x, lambda y: (y > 4).long()),
    "rest by three": (lambda x: x, lambda y: y % 3),
    "0 to 4, rotated": (_rotated, lambda y: torch.where(y < 5, y, -1)),
}


def _draws(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _digits(seed: int) -> tuple[Tensor, Tensor]:
    from sklearn.datasets import load_digits

    found = load_digits()
    order = torch.randperm(len(found.target), generator=_draws(seed))
    inputs_ND = torch.tensor(found.data, dtype=torch.float32)[order] / 16
    return inputs_ND, torch.tensor(found.target)[order]


def _task(which: Any, inputs_ND: Tensor, digits_N: Tensor) -> tuple[Tensor, Tensor]:
    change, rename = which
    labels_N = rename(digits_N)
    return change(inputs_ND)[labels_N >= 0], labels_N[labels_N >= 0]


def _network(outputs: int, seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(64, _WIDTH),
        nn.ReLU(),
        nn.Linear(_WIDTH, _WIDTH),
        nn.ReLU(),
        nn.Linear(_WIDTH, outputs),
    )


def _pretrained(name: str, inputs_ND: Tensor, digits_N: Tensor, seed: int) -> nn.Sequential:
    """Learn a task on the first half of the examples."""
    half = len(inputs_ND) // 2
    inputs_ND, labels_N = _task(_TASKS[name], inputs_ND[:half], digits_N[:half])
    network = _network(int(labels_N.max()) + 1, seed)
    _fit(network, inputs_ND, labels_N, seed)
    return network


def _compare(
    target: str, sources: dict[str, nn.Sequential], inputs_ND: Tensor, digits_N: Tensor, seed: int
) -> tuple[dict[str, list[float]], list[float]]:
    """Return the scores and the accuracies of all candidates on a target, on the second half."""
    half = len(inputs_ND) // 2
    inputs_ND, labels_N = _task(_TARGETS[target], inputs_ND[half:], digits_N[half:])
    scores: dict[str, list[float]] = {kind: [] for kind in SCORES}
    accuracies = []
    for network in sources.values():
        few = slice(0, _LABELS)
        for kind, score in _scores(network, inputs_ND[few], labels_N[few]).items():
            scores[kind].append(score)
        tuned = [_tuned(network, inputs_ND, labels_N, part, seed) for part in range(_TUNINGS)]
        accuracies.append(statistics.mean(tuned))
    return scores, accuracies


def _tuned(
    network: nn.Sequential, inputs_ND: Tensor, labels_N: Tensor, part: int, seed: int
) -> float:
    """Return the accuracy after fine-tuning on one part of the labels, on all that is in none."""
    few, rest = slice(part * _LABELS, (part + 1) * _LABELS), slice(_TUNINGS * _LABELS, None)
    tuned = _network(int(labels_N.max()) + 1, seed)
    own = {key: one for key, one in network.state_dict().items() if not key.startswith("4.")}
    tuned.load_state_dict({**tuned.state_dict(), **own})
    _fit(tuned, inputs_ND[few], labels_N[few], seed)
    said = tuned(inputs_ND[rest]).argmax(1)
    return float((said == labels_N[rest]).double().mean())


def _scores(network: nn.Sequential, inputs_ND: Tensor, labels_N: Tensor) -> dict[str, float]:
    from ludus.active.selection import h_score, leep, logme, nce

    with torch.no_grad():
        features_ND, probs_NZ = network[:4](inputs_ND), network(inputs_ND).softmax(1)
    return {
        "logme": logme(features_ND, labels_N),
        "leep": leep(probs_NZ, labels_N),
        "nce": nce(probs_NZ, labels_N),
        "h_score": h_score(features_ND, labels_N),
        "logme of few": logme(features_ND[:_FEW], labels_N[:_FEW]),
    }


def _fit(network: nn.Module, inputs_ND: Tensor, labels_N: Tensor, seed: int) -> None:
    import ludus
    from ludus.core.runtime import InMemoryRuntime

    config = ludus.example("supervised").replace(
        seed=seed,
        data=None,
        model=None,
        max_epochs=_EPOCHS,
        batch_size=32,
        evaluation__patience=None,
        evaluation__keep=0,
        evaluate_every_epochs=0,
        ema_decay=None,
        engine="tape",
        **{"settings.display": "none", "settings.loggers": []},
    )
    ludus.Trainer(config, train_loader=TensorDataset(inputs_ND, labels_N), model=network).fit(
        runtime=InMemoryRuntime
    )
