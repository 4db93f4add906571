"""One model or a list of them: which is taken, from what weights, and that a resume takes the same."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ludus
from ludus.active.models.candidates import Candidates
from ludus.active.trainers.active import ActiveTrainer
from ludus.core import Run
from ludus.core.errors import ConfigError, LudusError
from ludus.core.runtime import InMemoryRuntime
from ludus.nn.model import Model
from ludus.testing.trainers import check_kill_anywhere
from tests.active.strategies.small import scorer_of
from tests.command_line import Ludus
from tests.supervised.conftest import MLP, WINE, lines

pytestmark = pytest.mark.usefixtures("warm_children")

SMALL = {
    "data": WINE,
    "max_rounds": 2,
    "max_epochs": 2,
    "initial_labels": 12,
    "queries": 4,
    "evaluation.patience": None,
    "evaluation.keep": 0,
    "engine": "eager",
    "settings.display": "none",
    "settings.threads": 1,
    "settings.loggers": [],
}


def trainer_of(**changes: Any) -> ActiveTrainer:
    config = ludus.example("active").replace(**{**SMALL, "model": MLP, **changes})
    trainer = ludus.build_trainer(config)
    assert isinstance(trainer, ActiveTrainer)
    return trainer


def network(seed: int, outputs: int = 3) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(13, 6), nn.ReLU(), nn.Linear(6, outputs))


def knowing(outputs: int = 3) -> nn.Sequential:
    """Return a network that tells the classes of wine apart; those of its own are 2, 0 and 1."""
    config = ludus.example("supervised").replace(
        data=WINE, model=None, max_epochs=60, evaluation__keep=0, evaluation__patience=None, engine="eager",
        **{"settings.display": "none", "settings.loggers": [], "optimizer.learning_rate": 0.02},
    )  # fmt: skip
    net = network(0, outputs)
    trainer = ludus.Trainer(config, model=net)
    trainer.fit(runtime=InMemoryRuntime)
    with torch.no_grad():
        order = [2, 0, 1, *range(3, outputs)]
        for tensor in net[2].parameters():
            tensor.copy_(tensor[order].clone())
    return net


@pytest.fixture(scope="module")
def learnt() -> nn.Sequential:
    return knowing()


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory of weights for five classes, of which three are those of wine."""
    place = tmp_path_factory.mktemp("models") / "five"
    model = Model({**MLP, "widths": [6], "outputs": 5})
    for own, other in zip(
        [one for one in model.module.modules() if isinstance(one, nn.Linear)],
        [one for one in knowing(5) if isinstance(one, nn.Linear)],
        strict=True,
    ):
        own.load_state_dict(other.state_dict())
    model.save_model(place)
    return place


def candidates(weights: Path) -> list[dict[str, Any]]:
    five = {**MLP, "widths": [6], "outputs": 5}
    wide = {**MLP, "widths": [4], "outputs": 5}
    return [
        {"name": "fresh", "model": wide, "weights": None},
        {"name": "learnt", "model": five, "weights": str(weights)},
    ]


def copy_of(net: nn.Sequential) -> nn.Sequential:
    other = network(5, net[2].out_features)
    other.load_state_dict(net.state_dict())
    return other


@pytest.mark.covers("003-D5")
def test_one_model_is_a_list_of_one() -> None:
    for given in (network(1), [network(1)], Model(network(1))):
        trainer = trainer_of(model=None, selection="logme")
        trainer.set_model(given)
        trainer.fit(runtime=InMemoryRuntime)
        assert trainer.candidates.names == ["0-sequential"]
        assert len(trainer.candidates.scores) == 1


@pytest.mark.covers("003-M4")
@pytest.mark.parametrize("selection", ["leep", "logme", "nce", "h_score"])
def test_of_a_list_the_model_that_transfers_best_is_taken(
    selection: str, learnt: nn.Sequential
) -> None:
    nets = [network(1), copy_of(learnt), network(2)]
    trainer = trainer_of(model=None, selection=selection, initial_labels=40)
    trainer.set_model(nets)
    first = nets[0][0].weight.detach().clone()
    trainer.fit(runtime=InMemoryRuntime)
    assert trainer.candidates.chosen == 1
    assert trainer.model.module is nets[1]
    assert torch.equal(nets[0][0].weight, first), "a model that was not taken has learnt"
    assert not torch.equal(nets[1][0].weight, learnt[0].weight)
    assert trainer.select_active_model() == "1-sequential"


def test_without_a_score_the_first_is_taken_or_the_one_that_is_set() -> None:
    for which, place in ((None, 0), (1, 1), ("1-sequential", 1)):
        trainer = trainer_of(model=None)
        trainer.set_model([network(1), network(2)])
        if which is not None:
            trainer.set_model(which)
        trainer.fit(runtime=InMemoryRuntime)
        assert trainer.model is trainer.candidates.models[place]
        assert trainer.update.model is trainer.model


def test_a_candidate_that_gives_way_forgets_what_it_learnt() -> None:
    nets = [network(1), network(2)]
    trainer = trainer_of(model=None, round_start="warm")
    trainer.set_model(nets)
    first = nets[0][0].weight.detach().clone()
    trainer.fit(runtime=InMemoryRuntime)
    assert not torch.equal(nets[0][0].weight, first)
    trainer.set_model(1)
    assert torch.equal(nets[0][0].weight, first)
    with pytest.raises(ConfigError, match="no candidate is named 2; there are 0-seq"):
        trainer.set_model(2)
    with pytest.raises(ConfigError, match="no candidate is named 1-sequentiel"):
        trainer.set_model("1-sequentiel")


def test_weights_of_earlier_runs_get_a_new_head_and_are_ranked_by_the_old_one(
    weights: Path,
) -> None:
    told: list[str] = []
    for selection in ("leep", "logme"):
        trainer = trainer_of(
            model=None, candidates=candidates(weights), new_head=3, selection=selection,
            initial_labels=40, max_rounds=1,
        )  # fmt: skip
        trainer.fit(runtime=InMemoryRuntime)
        assert trainer.candidates.names[trainer.candidates.chosen] == "learnt"
        assert trainer.model(torch.zeros(1, 13)).shape == (1, 3)
        told.append(trainer.candidates.table(trainer.config.selection))
    assert [line.split()[:2] for line in told[0].splitlines()] == [
        ["rank", "candidate"], ["1", "learnt"], ["2", "fresh"],
    ]  # fmt: skip


def test_a_new_head_is_drawn_by_the_seed_alone(weights: Path) -> None:
    heads = []
    for seed in (0, 0, 1):
        torch.manual_seed(len(heads))
        trainer = trainer_of(
            model=None, candidates=candidates(weights)[1:], new_head=3, seed=seed, max_rounds=1,
            max_epochs=1,
        )  # fmt: skip
        trainer.config = trainer.config.replace(**{"optimizer.learning_rate": 1e-30})
        trainer.fit(runtime=InMemoryRuntime)
        heads.append(list(trainer.model.module.parameters())[-2].detach().clone())
        body = next(iter(trainer.model.module.parameters()))
        kept = Model({**MLP, "widths": [6], "outputs": 5})
        kept.load_model(weights)
        assert torch.allclose(body, next(iter(kept.module.parameters())))
    assert torch.equal(heads[0], heads[1])
    assert not torch.equal(heads[0], heads[2])


def test_a_scripts_model_that_is_fitted_twice_is_ranked_by_its_first_head(
    learnt: nn.Sequential,
) -> None:
    trainer = trainer_of(model=None, new_head=3, selection="leep", max_rounds=1)
    trainer.set_model([copy_of(learnt), network(1)])
    trainer.fit(runtime=InMemoryRuntime)
    scores = trainer.candidates.scores
    other = trainer_of(model=None, new_head=3, selection="leep", max_rounds=1)
    other.set_model([copy_of(learnt), network(1)])
    other.prepare(max_steps=None)
    other.fit(runtime=InMemoryRuntime)
    assert other.candidates.scores == scores


@pytest.mark.covers("003-S2")
@pytest.mark.parametrize("start", ["cold", "warm"])
def test_a_run_that_took_the_second_candidate_resumes_exactly_from_anywhere(
    start: str, weights: Path, tmp_path: Path
) -> None:
    def make() -> ActiveTrainer:
        return trainer_of(
            model=None, candidates=candidates(weights), new_head=3, selection="leep",
            round_start=start, ema_decay=0.9, initial_labels=40, batch_size=20,
            **{"settings.checkpoint.every_stages": 1},
        )  # fmt: skip

    check_kill_anywhere(make, tmp_path, max_kills=4)


class Switch:
    """Exchanges the model after each round."""

    def after_test(self, run: Run) -> None:
        TRAINERS[-1].set_model((run.round("round") + 1) % 2)


TRAINERS: list[ActiveTrainer] = []


@pytest.mark.parametrize("start", ["cold", "warm"])
def test_a_model_that_a_hook_sets_resumes_exactly_from_anywhere(start: str, tmp_path: Path) -> None:
    def make() -> ActiveTrainer:
        trainer = trainer_of(
            model=None, max_rounds=3, max_epochs=1, round_start=start, evaluate_every_epochs=1,
            evaluation__metric="validation/epoch_loss", evaluation__keep=1,
            **{"settings.checkpoint.every_stages": 1},
        )  # fmt: skip
        trainer.set_model([network(1), network(2)])
        trainer.add(Switch())
        TRAINERS.append(trainer)
        return trainer

    check_kill_anywhere(make, tmp_path, max_kills=4)
    assert TRAINERS[0].candidates.chosen == 1


ACTIVATIONS = [
    {"name": one, "model": {**MLP, "activation": one}, "weights": None} for one in ("relu", "tanh")
]


@pytest.mark.parametrize(
    "best", [{}, {"evaluation.metric": "validation/epoch_loss", "evaluation.keep": 1}]
)
def test_kept_weights_are_evaluated_in_the_network_of_their_candidate(
    best: dict[str, Any], tmp_path: Path, call: Ludus
) -> None:
    trainer = trainer_of(
        model=None, candidates=ACTIVATIONS, **best, max_rounds=1, max_epochs=20,
        evaluate_every_epochs=1, name="two",
    )  # fmt: skip
    trainer.set_model("tanh")
    result = trainer.fit(root="runs", name="two")
    told = lines(result.run_dir)[-1]["test/loss"]
    for words in ([], ["--model", "last"]):
        found = call("eval", "runs/two", "--json", *words).json["metrics"]["test/loss"]
        assert found == pytest.approx(told, rel=1e-6)
    if best:
        note = json.loads((Path(result.run_dir) / "models/best/model.json").read_text())
        assert note["candidate"] == "tanh"
        call("eval", "runs/two", "--model", "models/best")


def test_a_model_that_the_script_sets_is_not_exchanged_by_a_score(
    learnt: nn.Sequential, tmp_path: Path
) -> None:
    trainer = trainer_of(model=None, selection="leep", initial_labels=40)
    trainer.set_model([network(1), copy_of(learnt)])
    trainer.set_model(0)
    result = trainer.fit(root=str(tmp_path), name="set")
    assert trainer.candidates.chosen == 0
    events = (Path(result.run_dir) / "events.jsonl").read_text()
    assert (
        "the model is 0-sequential, which the script has set; selection leep is not asked" in events
    )
    assert trainer.select_active_model() == "1-sequential"


def test_a_model_that_the_script_set_stays_set_when_the_run_is_resumed_without_it() -> None:
    def prepared(name: str | None) -> ActiveTrainer:
        trainer = trainer_of(model=None, candidates=ACTIVATIONS, selection="logme", max_rounds=1)
        if name is not None:
            trainer.set_model(name)
        trainer.prepare(max_steps=None)
        return trainer

    by_hand, by_score = prepared("tanh"), prepared(None)
    by_score.load_state_dict(by_hand.state_dict())
    assert by_score.candidates.wanted == by_score.candidates.chosen == 1
    by_score._select(by_score.run)
    assert by_score.candidates.scores == []
    by_hand.load_state_dict(prepared(None).state_dict())
    assert by_hand.candidates.wanted is None


@pytest.mark.parametrize("start", ["cold", "warm"])
def test_candidates_are_ranked_as_they_began_whatever_one_has_learnt(start: str) -> None:
    trainer = trainer_of(
        model=None, selection="logme", round_start=start, ema_decay=0.9, features_layer="0",
        optimizer={**ludus.example("active").optimizer.model_dump(), "learning_rate": 0.1},
    )  # fmt: skip
    trainer.set_model([network(1), network(1)])
    trainer.fit(runtime=InMemoryRuntime)
    learnt = {name: one.clone() for name, one in trainer.model.state_dict().items()}
    assert not torch.equal(learnt["0.weight"], network(1)[0].weight)
    trainer.select_active_model()
    assert trainer.candidates.scores[0] == trainer.candidates.scores[1]
    assert trainer.candidates.chosen == 0
    assert all(torch.equal(one, learnt[n]) for n, one in trainer.model.state_dict().items())


def test_a_layer_and_a_function_of_features_are_not_both_given() -> None:
    trainer = trainer_of(strategy={"kind": "core_set"}, features_layer="layers.0")
    trainer.set_features(lambda model, inputs: inputs)
    with pytest.raises(ConfigError, match="set_features gave a function, which is asked instead"):
        trainer.fit(runtime=InMemoryRuntime)


def test_a_model_that_a_hook_sets_is_not_the_first_of_the_next_run() -> None:
    class Once:
        def after_test(self, run: Run) -> None:
            trainer.set_model(1)

    trainer = trainer_of(model=None, selection="leep", max_rounds=1)
    trainer.set_model([network(1), network(2)])
    trainer.add(Once())
    trainer.fit(runtime=InMemoryRuntime)
    assert trainer.candidates.chosen == 1
    assert trainer.candidates.wanted is None


def test_the_best_weights_of_a_model_that_gave_way_are_forgotten(tmp_path: Path) -> None:
    class Early:
        def after_sum_up(self, run: Run) -> None:
            if run.round("epoch") == 2:
                trainer.set_model(1)

    wide = nn.Sequential(nn.Linear(13, 9), nn.ReLU(), nn.Linear(9, 3))
    trainer = trainer_of(
        model=None, max_rounds=1, max_epochs=4, evaluate_every_epochs=1, round_start="warm",
        evaluation__metric="validation/epoch_loss", evaluation__keep=1,
        optimizer={**ludus.example("active").optimizer.model_dump(), "learning_rate": 1e-9},
    )  # fmt: skip
    trainer.set_model([network(1), wide])
    trainer.add(Early())
    trainer.fit(root=str(tmp_path), name="early")
    best = trainer.best()
    assert trainer.model.module is wide
    assert best is not None
    assert best["counters"]["epoch"] > 2


def test_validation_beside_training_is_heard_in_the_round_that_it_is_of(tmp_path: Path) -> None:
    best = {"evaluation.metric": "validation/epoch_loss", "evaluation.keep": 1}
    found = []
    for is_beside in (False, True):
        trainer = trainer_of(evaluate_every_epochs=1, max_epochs=3, **best)
        if is_beside:
            trainer.set_evaluator(ludus.AsyncEvaluator(trainer.config))
        result = trainer.fit(root=str(tmp_path), name=f"beside-{is_beside}")
        rows = lines(result.run_dir)
        tested = [row["test/loss"] for row in rows if "test/loss" in row]
        heard = [row["opt_steps"] for row in rows if "validation/epoch_loss" in row]
        assert len(heard) == 6
        assert result.best is not None
        found.append((heard, tested, result.best["counters"]["opt_steps"]))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("changes", "models", "told"),
    [
        ({"model": None}, [network(1), network(1, 4)], "1-sequential gives 4 outputs, and 0-sequential"),
        ({"model": None}, [], "an empty list of models"),
        ({"model": None}, ["resnet", network(1)], "a str is no model"),
        ({"model": None, "new_head": 3}, [nn.Flatten()], "no linear layer|cannot learn"),
        ({"model": None, "features_layer": "5", "selection": "logme"}, [network(1)], "no such layer"),
    ],
)  # fmt: skip
def test_models_that_cannot_be_candidates_are_refused(
    changes: dict[str, Any], models: Any, told: str
) -> None:
    def fit() -> None:
        trainer = trainer_of(**changes)
        trainer.set_model(models)
        trainer.fit(runtime=InMemoryRuntime)

    with pytest.raises(LudusError, match=told):
        fit()


def test_keys_of_candidates_that_do_not_fit_are_told(weights: Path) -> None:
    for changes, told in (
        ({"new_head": 3}, "'new_head' is for candidates with weights"),
        ({"new_head": 1, "model": None}, "'new_head' is 1, but cross_entropy"),
        ({"candidates": candidates(weights)}, "'candidates' and 'model' are both given"),
        ({"candidates": candidates(weights)[:1] * 2, "model": None}, "two candidates are named fresh"),
        ({"selection": "leep", "initial_labels": 0}, "'selection' compares candidates on the first"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=told):
            trainer_of(**changes)
    missing = candidates(weights)
    missing[1]["weights"] = str(weights / "nowhere")
    with pytest.raises(ConfigError, match="the weights of candidate learnt"):
        trainer_of(model=None, candidates=missing, new_head=3).fit(runtime=InMemoryRuntime)
    missing[1] |= {"weights": str(weights), "model": {**MLP, "widths": [7], "outputs": 5}}
    with pytest.raises(ConfigError, match=r"the weights of candidate learnt: .* do not fit"):
        trainer_of(model=None, candidates=missing, new_head=3).fit(runtime=InMemoryRuntime)


def test_candidates_cannot_be_ranked_before_there_are_labels_or_a_score() -> None:
    trainer = trainer_of(selection="logme")
    trainer.prepare(max_steps=None)
    with pytest.raises(LudusError, match="no labels yet"):
        trainer.select_active_model()
    trainer = trainer_of()
    trainer.prepare(max_steps=None)
    with pytest.raises(ConfigError, match="'selection' is null"):
        trainer.select_active_model()


def test_the_report_ranks_the_candidates(tmp_path: Path, learnt: nn.Sequential) -> None:
    from ludus.show.report.page import write_report

    trainer = trainer_of(model=None, selection="logme", max_rounds=1, initial_labels=40)
    trainer.set_model([network(1), copy_of(learnt)])
    trainer.root = str(tmp_path)
    trainer.fit()
    page = write_report([next(tmp_path.iterdir())]).read_text()
    table = page.split("<h2>Ranking of the candidates</h2>")[1].split("</table>")[0]
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in table.split("<tr>")[2:]]
    taken = ' <span class="pill finished">taken</span>'
    assert [row[:2] for row in rows] == [["1", f"1-sequential{taken}"], ["2", "0-sequential"]]
    assert float(rows[0][2]) > float(rows[1][2])
    assert [row[3] for row in rows] == 2 * [f"{sum(p.numel() for p in learnt.parameters()):,}"]
    assert "<th>logme</th>" in table


class BodyListedLast(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head, self.body = nn.Linear(4, 5), nn.Linear(13, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.body(x).relu())
        return out


def test_a_new_head_that_would_not_be_the_head_is_refused() -> None:
    trainer = trainer_of(model=None, new_head=4, selection="logme", max_rounds=1)
    trainer.set_model([BodyListedLast(), BodyListedLast()])
    with pytest.raises(ConfigError, match="lists last, body"):
        trainer.fit(runtime=InMemoryRuntime)


def test_labels_of_one_class_are_told_when_candidates_are_ranked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = Candidates()
    found.names = ["a", "b"]
    model = Model(nn.Linear(13, 3), loss="cross_entropy")
    found.models = found._sources = [model, model]
    scorer = scorer_of(torch.randn(6, 13), model.module)
    rows, same = torch.arange(6), torch.ones(6, dtype=torch.int64)
    assert found.rank("leep", lambda _: scorer, rows, same, "cross_entropy") == 0
    assert "all of one class" in capsys.readouterr().err
    found.rank("h_score", lambda _: scorer, rows, same, "cross_entropy")
    assert "more examples than there are features" in capsys.readouterr().err
    found.rank("leep", lambda _: scorer, rows, rows % 3, "cross_entropy")
    assert capsys.readouterr().err == ""


def test_a_new_head_may_be_followed_by_what_is_not_linear() -> None:
    def tempered() -> nn.Sequential:
        return nn.Sequential(nn.Linear(13, 4), nn.ReLU(), nn.Linear(4, 5), nn.LogSoftmax(1))

    trainer = trainer_of(model=None, new_head=3, selection="logme", max_rounds=1)
    trainer.set_model([tempered(), tempered()])
    trainer.fit(runtime=InMemoryRuntime)
    assert trainer.model.module[2].out_features == 3


def test_validation_beside_training_of_a_committee_is_refused() -> None:
    committee = {"kind": "committee_kl", "members": 2, "shortlist": None}
    trainer = trainer_of(evaluate_every_epochs=1, strategy=committee)
    trainer.set_evaluator(ludus.AsyncEvaluator(trainer.config))
    with pytest.raises(ConfigError, match=r"rebuilds one network .* and a committee is several"):
        trainer.fit(runtime=InMemoryRuntime)


@pytest.mark.parametrize("selection", ["leep", "nce"])
def test_fewer_labels_than_source_classes_are_told(
    selection: str, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = trainer_of(model=None, selection=selection, max_rounds=1, initial_labels=3)
    trainer.set_model([network(0), network(1)])
    trainer.fit(runtime=InMemoryRuntime)
    assert f"{selection} of 3 labels and " in capsys.readouterr().err
