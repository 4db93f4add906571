"""What a trainer can do with kept weights is what it says it can; the commands refuse the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.cli.exporting import export_run
from ludus.cli.tasks import evaluate_run, play_run
from ludus.config.registry import find
from ludus.core.abilities import Evaluates, Exports, Narrates, Plays, find_ability
from ludus.core.errors import LudusError
from ludus.core.trainer import Trainer
from tests.command_line import small_config
from tests.conftest import modules_in

ABILITIES = (Evaluates, Plays, Exports)


def test_the_base_of_all_trainers_can_do_none_of_it() -> None:
    trainer = Trainer(None)
    assert not [ability for ability in ABILITIES if isinstance(trainer, ability)]


@pytest.mark.parametrize("kind", ["dqn", "iqn", "sac", "ppo"])
def test_an_agent_can_be_evaluated_watched_and_exported(kind: str) -> None:
    trainer = ludus.build_trainer(ludus.example(kind))
    assert all(find_ability(trainer, ability) is not None for ability in ABILITIES)


@pytest.mark.parametrize("kind", ["fused_dqn", "fused_ppo"])
def test_a_player_of_games_can_be_evaluated_and_its_games_are_told(kind: str) -> None:
    player = find("trainer", kind)
    assert issubclass(player, Evaluates)
    assert issubclass(player, Narrates)
    assert issubclass(player, Exports)
    assert not issubclass(player, Plays)


@pytest.mark.parametrize("kind", ["vanilla_ppo", "reinforce", "spg"])
def test_agents_under_a_protocol_can_be_evaluated_and_their_episodes_are_told(kind: str) -> None:
    found = find("trainer", kind)
    assert [one for one in ABILITIES if issubclass(found, one)] == [
        one for one in ABILITIES if one in (Evaluates, Narrates)
    ]


def test_a_supervised_model_can_be_evaluated_only(tmp_path: Path) -> None:
    trainer: Any = ludus.build_trainer(small_config(max_epochs=1))
    assert [ability for ability in ABILITIES if isinstance(trainer, ability)] == [Evaluates]
    run = str(trainer.fit(root=str(tmp_path)).run_dir)
    with pytest.raises(
        LudusError, match=r"^a run of kind 'supervised' has nothing to film; try ludus report"
    ):
        play_run(run, None, episode=0, fps=10.0)
    with pytest.raises(
        LudusError,
        match=r"^a run of kind 'supervised' cannot be exported to NumPy; --format torch or onnx",
    ):
        export_run(run, None)


def test_an_ability_with_other_arguments_is_refused_with_those_it_is_called_with(
    tmp_path: Path,
) -> None:
    class Own(ludus.Trainer):
        def evaluate_weights(self, weights: Any) -> dict[str, float]:  # type: ignore[override]
            return {}

    with pytest.raises(
        LudusError,
        match=r"^Own\.evaluate_weights is called as evaluate_weights\(weights, \*, episodes=None,"
        r" seed=None\), and cannot be: got an unexpected keyword argument 'episodes'$",
    ):
        find_ability(Own(small_config()), Evaluates)


def test_what_keeps_no_weights_is_refused_by_every_command(tmp_path: Path) -> None:
    toy: Any = modules_in("contracts/trainers")["toy_game"]
    run = str(toy.make().fit(root=str(tmp_path)).run_dir)
    with pytest.raises(
        LudusError, match=r"^a run of kind 'toy_game' cannot be evaluated .* weights_of and"
    ):
        evaluate_run(run, as_json=False)
    with pytest.raises(LudusError, match=r"^a run of kind 'toy_game' has nothing to film"):
        play_run(run, None, episode=0, fps=10.0)
