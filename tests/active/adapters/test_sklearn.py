"""A scikit-learn classifier as the model of an active run."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ludus.active.adapters.sklearn import Classifier
from ludus.active.trainers.active import ActiveTrainer
from ludus.core.errors import ConfigError, LudusError
from ludus.core.runtime import InMemoryRuntime
from ludus.testing.trainers import check_kill_anywhere
from tests.active.test_candidates import network, trainer_of

ONCE: dict[str, Any] = {"model": None, "max_epochs": 1, "max_rounds": 3, "round_start": "cold"}


def forest() -> RandomForestClassifier:
    return RandomForestClassifier(n_estimators=5)


def test_it_is_fitted_to_all_labels_of_the_round_and_chooses_by_its_probabilities() -> None:
    trainer = trainer_of(**ONCE)
    trainer.set_model(Classifier(LogisticRegression(), classes=3))
    trainer.fit(runtime=InMemoryRuntime)
    rows, labels = trainer.pool.labelled, trainer.pool.labels.numpy()
    inputs = trainer.examples.inputs(torch.arange(trainer.pool.size))
    by_hand = LogisticRegression().fit(inputs[rows].numpy(), labels)
    expected = by_hand.predict_proba(inputs.numpy())
    assert np.allclose(trainer.model(inputs).exp().numpy(), expected, atol=1e-6)
    # The last round asked by the classifier of the round before.
    before = LogisticRegression().fit(inputs[rows[:16]].numpy(), labels[:16])
    two = np.sort(before.predict_proba(inputs.numpy()), 1)[:, -2:]
    margins = two[:, 1] - two[:, 0]
    free = sorted(set(range(trainer.pool.size)) - set(rows[:16].tolist()))
    wanted = sorted(free, key=lambda row: margins[row])[:4]
    assert set(rows[16:].tolist()) == set(wanted)


@pytest.mark.parametrize("make_one", [forest, lambda: make_pipeline(StandardScaler(), forest())])
def test_a_run_that_is_killed_anywhere_ends_the_same(make_one: Any, tmp_path: Path) -> None:
    def make() -> ActiveTrainer:
        trainer = trainer_of(**ONCE, **{"settings.checkpoint.every_stages": 1})
        trainer.set_model([network(1), Classifier(make_one(), classes=3)])
        trainer.set_model(1)
        return trainer

    check_kill_anywhere(make, tmp_path, max_kills=3)


def test_what_is_random_in_it_is_drawn_from_the_seed_of_the_run() -> None:
    said = []
    for seed in (0, 0, 1):
        np.random.seed(len(said))
        trainer = trainer_of(**ONCE, seed=seed)
        trainer.set_model(Classifier(forest(), classes=3))
        trainer.fit(runtime=InMemoryRuntime)
        said.append(trainer.model(trainer.examples.inputs(torch.arange(50))))
    assert torch.equal(said[0], said[1])
    assert not torch.equal(said[0], said[2])


def test_classes_that_no_label_has_named_have_hardly_any_probability() -> None:
    model = Classifier(LogisticRegression(), classes=4)
    inputs = torch.arange(6.0)[:, None]
    assert torch.allclose(model(inputs).softmax(1), torch.full((6, 4), 0.25))
    model.fit(inputs.numpy(), np.array([1, 1, 1, 3, 3, 3]), seed=0)
    assert model(inputs).argmax(1).tolist() == [1, 1, 1, 3, 3, 3]
    assert float(model(inputs)[:, [0, 2]].max()) < -20
    model.fit(inputs.numpy(), np.array([2] * 6), seed=0)
    assert model(inputs).argmax(1).tolist() == [2] * 6
    model.forget()
    assert torch.allclose(model(inputs).softmax(1), torch.full((6, 4), 0.25))


def test_features_come_from_a_function() -> None:
    trainer = trainer_of(**ONCE, strategy={"kind": "core_set"})
    trainer.set_model(Classifier(LogisticRegression(), classes=3))
    with pytest.raises(ConfigError, match="function of features"):
        trainer.fit(runtime=InMemoryRuntime)
    trainer = trainer_of(**ONCE, strategy={"kind": "core_set"})
    trainer.set_model(Classifier(LogisticRegression(), classes=3))
    trainer.set_features(lambda model, inputs: inputs)
    trainer.fit(runtime=InMemoryRuntime)
    assert trainer.pool.num_labelled == 20


@pytest.mark.parametrize(
    ("make_one", "told"),
    [
        (LogisticRegression, "Classifier.it, classes="),
        (lambda: Classifier(LinearRegression(), classes=3), "no method predict_proba"),
        (lambda: Classifier(LogisticRegression(), classes=1), "2 or more"),
    ],
)
def test_what_is_no_classifier_is_told(make_one: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        trainer_of(**ONCE).set_model(make_one())


def test_keys_that_would_be_ignored_are_refused() -> None:
    trainer = trainer_of(model=None, round_start="warm", ema_decay=0.9)
    trainer.set_model(Classifier(LogisticRegression(), classes=3))
    with pytest.raises(
        ConfigError, match="'max_epochs' to 1; set 'ema_decay' to null; set 'round_start'"
    ):
        trainer.fit(runtime=InMemoryRuntime)


def test_what_a_classifier_refuses_is_told_in_a_sentence() -> None:
    model = Classifier(LogisticRegression(C=-1.0), classes=3)
    with pytest.raises(LudusError, match="the LogisticRegression cannot be fitted: The 'C' param"):
        model.fit(np.zeros((2, 1)), np.array([0, 1]), seed=0)
