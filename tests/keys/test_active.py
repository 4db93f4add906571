"""What each key of active learning does, but for those of the strategies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import ludus
from ludus.core.errors import ConfigError
from ludus.core.surroundings import Bare
from ludus.nn.model import Model
from tests.keys.runs import SGD, Outcome, differ, run, tiny
from tests.keys.table import changes
from tests.supervised.conftest import MLP, WINE

ACTIVE = "active"
SHORT = {"max_rounds": 3, "initial_labels": 10, "queries": 5}
FULL = {"start": "cold", "calibration": {"bins": 10, "temperature": True}}
STOPPING = {"max_labels": None, "target_accuracy": None, "stable_share": None, "stable_rounds": 1}


def short(**changed: Any) -> Outcome:
    """Return the outcome of three rounds that ask for 10, 5 and 5 labels."""
    return run(ACTIVE, **{**SHORT, **changed})


def asked(outcome: Outcome) -> list[int]:
    found: list[int] = outcome.trainer.pool.asked.tolist()
    return found


@changes(ACTIVE, "max_steps")
def test_steps_do_not_end_a_run_of_rounds(kind: str) -> None:
    with pytest.raises(ConfigError, match="'max_steps' counts over all rounds here, and ends none"):
        tiny(kind, max_steps=9)


@changes(ACTIVE, "max_rounds")
def test_labels_are_asked_for_in_so_many_rounds(kind: str) -> None:
    assert (short().counters["round"], short(max_rounds=2).counters["round"]) == (3, 2)
    assert asked(short())[:15] == asked(short(max_rounds=2))


@changes(ACTIVE, "initial_labels", "queries")
def test_the_first_round_asks_for_the_initial_labels_and_each_later_one_for_the_queries(
    kind: str,
) -> None:
    def rounds(**changed: Any) -> list[int]:
        counts: list[int] = short(**changed).trainer.pool.rounds.bincount().tolist()
        return counts

    assert rounds() == [10, 5, 5]
    assert rounds(initial_labels=7, queries=2) == [7, 2, 2]
    assert rounds(initial_labels=0) == [5, 5, 5]
    # The first ones are drawn by the seed alone; without them the strategy chooses from the start.
    uniform = short(initial_labels=5, max_rounds=1)
    assert asked(uniform) == asked(short(initial_labels=5, strategy={"kind": "uniform"}))[:5]
    assert asked(short(initial_labels=0))[:5] != asked(uniform)


@changes(ACTIVE, "strategy")
def test_what_is_asked_for_is_chosen_by_the_strategy(kind: str) -> None:
    uniform = asked(short(strategy={"kind": "uniform"}))
    assert asked(short())[:10] == uniform[:10]
    assert asked(short())[10:] != uniform[10:]


@changes(ACTIVE, "class_weights")
def test_a_class_that_is_wanted_more_is_asked_for_more(kind: str) -> None:
    more = {"queries": 20, "max_rounds": 2, "max_epochs": 10}
    counts = []
    for weights in ([1000.0, 1.0, 1.0], [1.0, 1.0, 1000.0]):
        labels = short(class_weights=weights, **more).trainer.pool.labels[10:]
        counts.append(labels.bincount(minlength=3).tolist())
    assert counts[0][0] > 2 * counts[1][0]


@changes(ACTIVE, "candidate_pool")
def test_only_so_many_examples_of_the_pool_are_looked_at(kind: str) -> None:
    seen: list[int] = []

    class Counting:
        def before_query(self) -> None: ...

    trainer: Any = ludus.build_trainer(tiny(kind, **SHORT, candidate_pool=12))
    trainer.add(Counting())
    prepare = trainer.prepare

    def watched(**options: Any) -> None:
        prepare(**options)
        choose = trainer.strategy.choose

        def choosing(view: Any, count: int) -> Any:
            seen.append(len(view.rows))
            return choose(view, count)

        trainer.strategy.choose = choosing

    trainer.prepare = watched
    trainer.fit(around=Bare)
    assert seen == [12, 12]
    assert asked(short(candidate_pool=12)) != asked(short())


@changes(ACTIVE, "scoring_batch_size")
def test_the_network_is_called_with_so_many_examples_of_the_pool_at_once(kind: str) -> None:
    sizes: list[int] = []
    trainer: Any = ludus.build_trainer(
        tiny(kind, **{**SHORT, "max_rounds": 2}, scoring_batch_size=40)
    )

    class Watching:
        def before_query(self) -> None:
            hook = trainer.model.module.register_forward_hook(
                lambda module, given, out: sizes.append(len(given[0]))
            )
            self.hook = hook

        def after_query(self) -> None:
            self.hook.remove()

    trainer.add(Watching())
    trainer.fit(around=Bare)
    assert sizes == [40, 40, 16]
    assert asked(short(scoring_batch_size=7)) == asked(short())


@changes(ACTIVE, "features_layer")
def test_the_features_of_an_example_are_the_outputs_of_the_layer(kind: str) -> None:
    strategy = {"strategy": {"kind": "core_set"}}
    assert asked(short(**strategy, features_layer="layers.0")) != asked(short(**strategy))
    with pytest.raises(ConfigError, match="layers"):
        Outcome(tiny(kind, **SHORT, **strategy, features_layer="layers.nine"))


@changes(ACTIVE, "oracle")
def test_the_oracle_that_is_named_answers(kind: str) -> None:
    trainer: Any = ludus.build_trainer(
        tiny(kind, **SHORT, oracle={"kind": "function", "at_once": 4})
    )
    trainer.set_oracle(lambda inputs, rows: [row % 3 for row in rows])
    trainer.fit(around=Bare)
    pool = trainer.pool
    assert pool.labels.tolist() == [row % 3 for row in pool.labelled.tolist()]
    known = short().trainer
    assert known.pool.labels.tolist() == known.examples.targets(known.pool.labelled).tolist()


@changes(ACTIVE, "start")
def test_each_round_begins_from_the_first_weights_or_goes_on(kind: str) -> None:
    one_step = {"max_epochs": 1, "batch_size": 64, "optimizer": {**SGD, "learning_rate": 1e-9}}
    for start, is_alike in (("cold", True), ("warm", False)):
        # One step a round: the weights before the first, and after each.
        outcome = short(start=start, **{**one_step, "optimizer": {**SGD, "learning_rate": 0.1}})
        first, after = outcome.moments[0]["model"], outcome.moments[1:]
        assert len(after) == 3
        ways = [float((moment["model"] - first).norm()) for moment in after]
        gone_on = float((after[1]["model"] - after[0]["model"]).norm())
        assert (ways[2] < 1.5 * ways[0]) is is_alike
        assert gone_on > 0
    assert asked(short(start="cold", **one_step)) == asked(short(start="warm", **one_step))


@changes(ACTIVE, "starting_checkpoint")
def test_each_round_begins_from_the_directory_of_weights(kind: str, tmp_path: Path) -> None:
    found = {}
    for seed in (1, 2):
        torch.manual_seed(seed)
        model = Model(MLP)
        model.save_model(tmp_path / f"{seed}")
        place = {"start": "checkpoint", "starting_checkpoint": str(tmp_path / f"{seed}")}
        outcome = short(**place, max_epochs=1, batch_size=64)
        kept = torch.cat([weight.detach().flatten() for weight in model.module.parameters()])
        assert torch.equal(outcome.moments[0]["model"], kept)
        found[seed] = outcome
    assert differ(found[1], found[2])
    with pytest.raises(ConfigError, match="'starting_checkpoint' is given, and 'start' is warm"):
        tiny(kind, start="warm", starting_checkpoint="a")


def candidate(name: str, width: int) -> dict[str, Any]:
    return {"name": name, "model": {**MLP, "widths": [width]}, "weights": None}


@changes(ACTIVE, "candidates", "selection")
def test_the_candidate_with_the_best_score_is_trained(kind: str) -> None:
    both = {"model": None, "candidates": [candidate("narrow", 2), candidate("wide", 32)]}
    first = short(**both, selection=None).trainer
    assert (first.candidates.chosen, first.candidates.scores) == (0, [])
    for selection in ("logme", "leep", "nce", "h_score"):
        trainer = short(**both, selection=selection).trainer
        scores = trainer.candidates.scores
        assert trainer.candidates.chosen == max(range(2), key=scores.__getitem__)
        assert trainer.model is trainer.candidates.models[trainer.candidates.chosen]
    assert short().trainer.candidates.names == ["0-mlp"]


@changes(ACTIVE, "stopping", "stopping.max_labels")
def test_no_more_labels_are_asked_for_than_the_budget_has(kind: str) -> None:
    assert short().counters["labels"] == 20
    for budget in (17, 15):
        outcome = short(stopping={**STOPPING, "max_labels": budget})
        assert outcome.counters["labels"] == budget
    assert outcome.counters["round"] == 2


@changes(ACTIVE, "stopping.target_accuracy")
def test_rounds_end_once_the_accuracy_is_reached(kind: str) -> None:
    assert short(stopping={**STOPPING, "target_accuracy": 0.01}).counters["round"] == 1
    many = {"max_rounds": 5, "max_epochs": 1}
    assert short(stopping={**STOPPING, "target_accuracy": 1.0}, **many).counters["round"] == 5


@changes(ACTIVE, "stopping.stable_share", "stopping.stable_rounds")
def test_rounds_end_once_predictions_are_stable_for_so_many_rounds(kind: str) -> None:
    idle = {"optimizer": {**SGD, "learning_rate": 1e-12}, "max_rounds": 6}
    for rounds in (1, 2):
        stopping = {**STOPPING, "stable_share": 1.0, "stable_rounds": rounds}
        # The first round has none before it to be compared with.
        assert short(stopping=stopping, **idle).counters["round"] == 1 + rounds
    busy = {"optimizer": {**SGD, "learning_rate": 0.5}, "max_epochs": 1}
    outcome = short(stopping={**STOPPING, "stable_share": 1.0}, **busy)
    assert outcome.curve("pool/stable_share")[1] < 1.0
    assert outcome.counters["round"] == 3
    assert short(stopping={**STOPPING, "stable_share": 0.01}, **busy).counters["round"] == 2


@changes(ACTIVE, "calibration", "calibration.bins", "calibration.temperature")
def test_calibration_is_measured_in_so_many_bins_and_with_the_temperature(kind: str) -> None:
    def names(**section: Any) -> set[str]:
        outcome = short(calibration={"bins": 10, "temperature": False, **section})
        return {name for record in outcome.records for name in record.scalars}

    plain = {name for record in short().records for name in record.scalars}
    assert names() > plain
    assert names(temperature=True) > names()
    ece = next(name for name in sorted(names() - plain) if "ece" in name)
    one, ten = (short(calibration={"bins": bins, "temperature": False}) for bins in (1, 10))
    assert one.curve(ece) != ten.curve(ece)


@changes(ACTIVE, "new_head")
def test_a_candidate_gets_a_new_last_layer_of_so_many_outputs(kind: str) -> None:
    other = {**MLP, "outputs": 7}
    given = {"model": None, "candidates": [{"name": "a", "model": other, "weights": None}]}
    trainer = short(**given, new_head=3).trainer
    assert trainer.model(torch.zeros(1, 13)).shape == (1, 3)
    assert short(**given, new_head=None).trainer.model(torch.zeros(1, 13)).shape == (1, 7)


def test_another_seed_asks_for_others_and_the_same_one_for_the_same() -> None:
    assert asked(short(seed=1)) != asked(short())
    assert differ(short(seed=1), short())
    assert asked(Outcome(tiny(ACTIVE, **SHORT))) == asked(short())
    assert WINE["kind"] == short().trainer.dataset_name
