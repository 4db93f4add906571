"""What each key of active learning does, but for those of the strategies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import ludus
from ludus.active.labelling.answering import Words
from ludus.active.labelling.queries import read_queries
from ludus.active.strategies.by_score import margin
from ludus.core.errors import ConfigError, LudusError
from ludus.core.runtime import InMemoryRuntime
from ludus.nn.model import Model
from ludus.store.places import open_storage
from tests.keys.runs import SGD, Outcome, differ, run, tiny
from tests.keys.table import changes
from tests.supervised.conftest import MLP, WINE

ACTIVE = "active"
SHORT = {"max_rounds": 3, "initial_labels": 10, "queries": 5}
FULL = {"round_start": "cold", "calibration": {"bins": 10, "temperature": True}}
STOPPING = {"max_labels": None, "target_accuracy": None, "stable_share": None, "stable_rounds": 1}


def short(**changed: Any) -> Outcome:
    """Return the outcome of three rounds that ask for 10, 5 and 5 labels."""
    return run(ACTIVE, **{**SHORT, **changed})


def asked(outcome: Outcome) -> list[int]:
    found: list[int] = outcome.trainer.pool.asked.tolist()
    return found


@changes(ACTIVE, "max_opt_steps")
def test_steps_do_not_end_a_run_of_rounds(kind: str) -> None:
    with pytest.raises(
        ConfigError, match="'max_opt_steps' counts over all rounds here, and ends none"
    ):
        tiny(kind, max_opt_steps=9)


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
def test_the_score_is_multiplied_by_the_weight_that_the_model_expects(kind: str) -> None:
    first = short(max_rounds=1, max_epochs=10).trainer
    free = first.pool.unasked
    seen = list(first._scorer(first.model).stream(free, {"probabilities"}))
    log_probs = torch.cat([one.log_probs for one in seen])
    found = {}
    for wanted in (None, 0, 1, 2):
        weights = [9.0 if at == wanted else 1.0 for at in range(3)]
        given = None if wanted is None else weights
        rows = asked(short(class_weights=given, queries=20, max_rounds=2, max_epochs=10))[10:]
        scores = margin(log_probs) * (log_probs.exp() @ torch.tensor(weights))
        assert set(rows) == set(free[scores.topk(20).indices].tolist())
        found[wanted] = [free.tolist().index(row) for row in rows]
    # Each class by itself is expected more in what is asked for, whatever the true classes are.
    for wanted in range(3):
        share = {key: float(log_probs.exp()[at, wanted].mean()) for key, at in found.items()}
        assert share[wanted] > share[None]


@changes(ACTIVE, "candidate_pool")
def test_only_so_many_examples_of_the_pool_are_looked_at(kind: str) -> None:
    seen: list[int] = []

    trainer: Any = ludus.build_trainer(tiny(kind, **SHORT, candidate_pool=12))
    prepare = trainer.prepare

    def watched(**options: Any) -> None:
        prepare(**options)
        choose = trainer.strategy.choose

        def choosing(view: Any, count: int) -> Any:
            seen.append(len(view.rows))
            return choose(view, count)

        trainer.strategy.choose = choosing

    trainer.prepare = watched
    trainer.fit(runtime=InMemoryRuntime)
    assert seen == [12, 12]
    assert asked(short(candidate_pool=12)) != asked(short())
    # One that is smaller than what is asked for is as large as that.
    assert len(asked(short(candidate_pool=2))) == 20


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
    trainer.fit(runtime=InMemoryRuntime)
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
    trainer.fit(runtime=InMemoryRuntime)
    pool = trainer.pool
    assert pool.labels.tolist() == [row % 3 for row in pool.labelled.tolist()]
    known = short().trainer
    assert known.pool.labels.tolist() == known.examples.targets(known.pool.labelled).tolist()


@changes(ACTIVE, "round_start")
def test_each_round_begins_from_the_first_weights_or_goes_on(kind: str) -> None:
    one_step = {"max_epochs": 1, "batch_size": 64, "optimizer": {**SGD, "learning_rate": 1e-9}}
    for start, is_alike in (("cold", True), ("warm", False)):
        # One step a round: the weights before the first, and after each.
        outcome = short(
            round_start=start, **{**one_step, "optimizer": {**SGD, "learning_rate": 0.1}}
        )
        first, after = outcome.moments[0]["model"], outcome.moments[1:]
        assert len(after) == 3
        ways = [float((moment["model"] - first).norm()) for moment in after]
        gone_on = float((after[1]["model"] - after[0]["model"]).norm())
        assert (ways[2] < 1.5 * ways[0]) is is_alike
        assert gone_on > 0
    assert asked(short(round_start="cold", **one_step)) == asked(
        short(round_start="warm", **one_step)
    )


@changes(ACTIVE, "starting_checkpoint")
def test_each_round_begins_from_the_directory_of_weights(kind: str, tmp_path: Path) -> None:
    found = {}
    for seed in (1, 2):
        torch.manual_seed(seed)
        model = Model(MLP)
        model.save_model(tmp_path / f"{seed}")
        place = {"round_start": "checkpoint", "starting_checkpoint": str(tmp_path / f"{seed}")}
        outcome = short(**place, max_epochs=1, batch_size=64)
        kept = torch.cat([weight.detach().flatten() for weight in model.module.parameters()])
        assert torch.equal(outcome.moments[0]["model"], kept)
        found[seed] = outcome
    assert differ(found[1], found[2])
    with pytest.raises(
        ConfigError, match="'starting_checkpoint' is given, and 'round_start' is warm"
    ):
        tiny(kind, round_start="warm", starting_checkpoint="a")


@changes("oracle known, oracle function, oracle human", "kind")
def test_who_answers_is_the_oracle_that_is_named(kind: str, tmp_path: Path) -> None:
    name = kind.removeprefix("oracle ")
    more = {"function": {"at_once": 4}, "human": {"class_names": None}}.get(name, {})
    trainer: Any = ludus.build_trainer(tiny(ACTIVE, **SHORT, oracle={"kind": name, **more}))
    calls: list[int] = []

    def answer(inputs: Any, rows: Any) -> Any:
        calls.extend(rows)
        return [0, 1, 2, 0][: len(rows)]

    if name == "function":
        trainer.set_oracle(answer)
    status = trainer.fit(root=str(tmp_path)).status
    assert (status == "interrupted") is (name == "human")
    assert (len(calls) > 0) is (name == "function")
    truth = trainer.examples.targets(trainer.pool.labelled)
    assert (len(truth) > 0 and torch.equal(trainer.pool.labels, truth)) is (name == "known")
    assert [*tmp_path.glob("*/queries/*.json")] != [] or name != "human"


@changes("oracle function", "at_once")
def test_the_function_is_given_so_many_examples_in_one_call(kind: str) -> None:
    for at_once, sizes in ((4, [4, 4, 2]), (10, [10])):
        oracle = {"kind": "function", "at_once": at_once}
        trainer: Any = ludus.build_trainer(
            tiny(ACTIVE, **{**SHORT, "max_rounds": 1}, oracle=oracle)
        )
        calls: list[int] = []

        def answer(inputs: Any, rows: Any, calls: list[int] = calls) -> Any:
            calls.append(len(rows))
            assert len(inputs) == len(rows)
            return [row % 3 for row in rows]

        trainer.set_oracle(answer)
        trainer.fit(runtime=InMemoryRuntime)
        assert calls == sizes


@changes("oracle human", "class_names")
def test_an_answer_may_be_the_name_of_a_class(kind: str, tmp_path: Path) -> None:
    for names, word in ((["red", "white", "rose"], "White"), (None, "1")):
        root = tmp_path / word
        oracle = {"kind": "human", "class_names": names}
        ludus.build_trainer(tiny(ACTIVE, **SHORT, oracle=oracle)).fit(root=str(root))
        queries = read_queries(open_storage(next(root.iterdir())))
        assert queries is not None
        assert queries.class_names == names
        assert Words(queries).label(0, word) == 1
        with pytest.raises(LudusError, match="no label; give a class from 0 to 2"):
            Words(queries).label(0, "green")
    with pytest.raises(LudusError, match="no label"):
        Words(queries).label(0, "white")


def test_a_candidate_has_the_name_the_network_and_the_weights_that_it_is_given(
    tmp_path: Path,
) -> None:
    torch.manual_seed(5)
    model = Model({**MLP, "widths": [5]})
    model.save_model(tmp_path / "kept")
    one = {"name": "mine", "model": {**MLP, "widths": [5]}, "weights": str(tmp_path / "kept")}
    kept = torch.cat([weight.detach().flatten() for weight in model.module.parameters()])
    outcome = short(model=None, candidates=[one], selection="logme")
    assert outcome.trainer.candidates.names == ["mine"]
    assert "selection/logme/mine" in {name for r in outcome.records for name in r.scalars}
    assert torch.equal(outcome.moments[0]["model"], kept)
    fresh = short(model=None, candidates=[one | {"weights": None}], selection="logme")
    assert fresh.moments[0]["model"].shape == kept.shape
    assert not torch.equal(fresh.moments[0]["model"], kept)
    # What a candidate without weights begins with is drawn by its name.
    other = short(
        model=None, candidates=[one | {"weights": None, "name": "yours"}], selection="nce"
    )
    assert not torch.equal(fresh.moments[0]["model"], other.moments[0]["model"])


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
