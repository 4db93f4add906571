"""Let other libraries ask for labels, of the network that ludus has, trained by a plain torch loop.

The pool, the test, the first labels and the first weights are those of the ludus run of the same seed, and so
are the optimizer and the epochs; the order of the batches and the dropout are drawn by another generator. A
library is given what the network says of the pool, and chooses.

Shapes: N rows that may be asked for, L labelled ones, D features, C classes.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import ludus
from benchmarks._active_tables import (
    TABLES,
    Table,
    accuracy,
    first_rows,
    network,
    pool_and_test,
)

Choose = Callable[["Plain", Tensor, Tensor, int], Any]
"""Takes the network, all inputs, whether each has a label, and how many to ask for; returns rows."""


class Plain:
    """The network, and a loop that fits it from its first weights."""

    def __init__(self, table: Table, seed: int) -> None:
        self.module = network(table, seed)
        self.seed = seed
        self._first = {key: one.clone() for key, one in self.module.state_dict().items()}
        self._epochs, self._config = table.max_epochs, ludus.example("active")

    def fit(self, inputs_LX: Tensor, labels_L: Tensor) -> None:
        """Start over, and learn these examples."""
        config, optimizer = self._config, self._config.optimizer
        torch.manual_seed(self.seed)
        self.module.load_state_dict(self._first)
        self.module.train()
        parameters = list(self.module.parameters())
        moves = torch.optim.AdamW(
            parameters,
            lr=optimizer.learning_rate,
            betas=(optimizer.beta1, optimizer.beta2),
            eps=optimizer.eps,
            weight_decay=optimizer.weight_decay,
        )
        for _ in range(self._epochs):
            for rows_B in torch.randperm(len(labels_L)).split(config.batch_size):
                moves.zero_grad()
                functional.cross_entropy(
                    self.module(inputs_LX[rows_B]), labels_L[rows_B]
                ).backward()
                nn.utils.clip_grad_norm_(parameters, config.max_grad_norm)
                moves.step()
        self.module.eval()

    @torch.no_grad()
    def says(self, inputs: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Return (N, C) probabilities and the (N, D) features they are made of."""
        kept: list[Tensor] = []
        handle = self.last.register_forward_pre_hook(lambda _, given: kept.append(given[0]))
        probs_NC = self.module(inputs).softmax(1)
        handle.remove()
        return probs_NC.double().numpy(), kept[0].double().numpy()

    @property
    def last(self) -> nn.Linear:
        """The last linear layer."""
        return [one for one in self.module.modules() if isinstance(one, nn.Linear)][-1]


def scikit_activeml(table: str, seed: int) -> dict[str, list[list[float]]]:
    """Return a curve for each strategy of scikit-activeml."""
    from skactiveml import pool
    from skactiveml.base import SkactivemlClassifier

    class AgentOutput(SkactivemlClassifier):  # type: ignore[misc]
        """Says of features what the last layer of the network makes of them."""

        def __init__(self, last: nn.Linear, classes: list[int]) -> None:
            super().__init__(classes=classes)
            self.last = last
            self.classes_ = np.array(classes)

        def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
            return self

        @torch.no_grad()
        def predict_proba(self, X: Any) -> Any:
            features_ND = torch.as_tensor(np.asarray(X), dtype=torch.float32)
            return self.last(features_ND).softmax(1).double().numpy()

    def choosing(make: Callable[[int], Any], needs_model: bool) -> Choose:
        def choose(plain: Plain, inputs: Tensor, is_labelled_N: Tensor, count: int) -> Any:
            features_ND = plain.says(inputs)[1]
            # What a label is does not matter to them, only that there is one.
            labels_N = np.where(is_labelled_N.numpy(), 0.0, np.nan)
            more = {}
            if needs_model:
                classes = list(range(plain.last.out_features))
                more = {"clf": AgentOutput(plain.last, classes), "fit_clf": False}
            asked = int(is_labelled_N.sum())
            return make(seed + asked).query(features_ND, labels_N, batch_size=count, **more)

        return choose

    def uncertain(method: str) -> Callable[[int], Any]:
        return lambda state: pool.UncertaintySampling(method=method, random_state=state)

    return _curves(
        table,
        seed,
        {
            "uniform": choosing(lambda state: pool.RandomSampling(random_state=state), False),
            "margin": choosing(uncertain("margin_sampling"), True),
            "entropy": choosing(uncertain("entropy"), True),
            "badge": choosing(lambda state: pool.Badge(random_state=state), True),
            "core_set": choosing(lambda state: pool.CoreSet(random_state=state), False),
        },
    )


def modal(table: str, seed: int) -> dict[str, list[list[float]]]:
    """Return the curve of margin sampling by modAL."""
    from modAL.models import ActiveLearner
    from modAL.uncertainty import margin_sampling
    from sklearn.base import BaseEstimator

    class AgentOutput(BaseEstimator):  # type: ignore[misc]
        """The fitted network, as scikit-learn would ask it."""

        def __init__(self, plain: Plain) -> None:
            self.plain = plain

        def predict_proba(self, X: Any) -> Any:
            return self.plain.says(torch.as_tensor(X))[0]

    def choose(plain: Plain, inputs: Tensor, is_labelled_N: Tensor, count: int) -> Any:
        free = (~is_labelled_N).nonzero()[:, 0]
        learner = ActiveLearner(AgentOutput(plain), query_strategy=margin_sampling)
        places, _ = learner.query(inputs[free].numpy(), n_instances=count)
        return free[torch.as_tensor(np.asarray(places))]

    return _curves(table, seed, {"margin": choose})


def baal(table: str, seed: int) -> dict[str, list[list[float]]]:
    """Return the curve of entropy sampling by baal, on one pass, without dropout."""
    from baal.active.heuristics import Entropy

    def choose(plain: Plain, inputs: Tensor, is_labelled_N: Tensor, count: int) -> Any:
        free = (~is_labelled_N).nonzero()[:, 0]
        places = np.asarray(Entropy()(plain.says(inputs[free])[0]))[:count].copy()
        return free[torch.as_tensor(places)]

    return _curves(table, seed, {"entropy": choose})


def _curves(name: str, seed: int, strategies: dict[str, Choose]) -> dict[str, list[list[float]]]:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    return {strategy: _curve(TABLES[name], seed, choose) for strategy, choose in strategies.items()}


def _curve(table: Table, seed: int, choose: Choose) -> list[list[float]]:
    (inputs, labels_N), test = pool_and_test(table, seed)
    np.random.seed(seed)
    plain, rows = Plain(table, seed), first_rows(table, len(labels_N), seed)
    curve: list[list[float]] = []
    for number in range(table.max_rounds):
        if number:
            is_labelled_N = torch.zeros(len(labels_N), dtype=torch.bool)
            is_labelled_N[rows] = True
            found = choose(plain, inputs, is_labelled_N, table.queries)
            rows = torch.cat([rows, torch.as_tensor(np.asarray(found), dtype=torch.int64)])
            assert len(rows.unique()) == len(rows)
        plain.fit(inputs[rows], labels_N[rows])
        curve.append([len(rows), accuracy(plain.module, test)])
    return curve
