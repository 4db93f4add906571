"""What the keys do by which other processes take part in a run, and how long they are waited for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch.utils.data import Dataset

import ludus
from ludus.config import registry
from ludus.envs.errors import EnvError
from tests.clocks import pass_once
from tests.keys.runs import run, tiny
from tests.keys.table import RL, TRAINERS, changes
from tests.keys.waiting_envs import waiting
from tests.supervised.conftest import history, lines

pytestmark = pytest.mark.usefixtures("warm_children")


@pytest.fixture(autouse=True)
def plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "loaded_plugins", ["tests.keys.waiting_envs"])


def fit(kind: str, root: Path, name: str, *, callback: Any = None, **changed: Any) -> Any:
    """Return the result of a tiny run in a directory of its own."""
    trainer: Any = ludus.build_trainer(tiny(kind, **changed))
    if callback is not None:
        trainer.add(callback)
    return trainer.fit(root=str(root), name=name)


def failures(result: Any) -> str:
    """Return what the run told of evaluations that failed."""
    events = lines(Path(str(result.run_dir)), "events.jsonl")
    return "\n".join(str(event) for event in events if "failed" in str(event))


class Opener:
    """Makes a file after the update that follows so many."""

    def __init__(self, file: Path, after: int) -> None:
        self.file, self.after = file, after

    def after_train_step(self, run: Any) -> None:
        if run.counters["opt_steps"] == self.after + 1:
            self.file.touch()


@changes(RL, "step_timeout_seconds", shown_by="dqn")
def test_a_step_in_a_worker_that_takes_longer_ends_the_run_and_is_named(
    kind: str, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    slow = {
        "callback": Opener(token, 0),
        "env": waiting(tmp_path / "never", 1.0, token=token),
        "evaluation.env": waiting(tmp_path / "never"),
        "settings.workers": 1,
    }
    before = {child.pid for child in psutil.Process().children()}
    hung = r"envs 0 to 1, did not answer within 0\.3 seconds"
    with pytest.raises(EnvError, match=hung):
        fit(kind, tmp_path, "hung", step_timeout_seconds=0.3, **slow)
    assert {child.pid for child in psutil.Process().children()} <= before
    assert fit(kind, tmp_path, "slow", step_timeout_seconds=30.0, **slow).status == "finished"


@changes(RL, "evaluation.asynchronous", shown_by="dqn, ppo")
def test_evaluations_run_in_a_process_of_their_own_while_training_goes_on(
    kind: str, tmp_path: Path
) -> None:
    """The env of the evaluation waits for what training does only after the evaluation has begun."""
    length = {"max_env_steps": 80} if kind == "ppo" else {}
    after = 12 if kind == "ppo" else 6
    assert run(kind, **length).at("eval/return_mean")[0] == after
    scores = {}
    for asynchronous, seconds in ((True, 30.0), (False, 0.1)):
        file = tmp_path / f"open-{asynchronous}"
        result = fit(
            kind,
            tmp_path,
            f"run-{asynchronous}",
            callback=Opener(file, after),
            env=waiting(tmp_path / "never"),
            **length,
            **{
                "evaluation.env": waiting(file, seconds),
                "evaluation.asynchronous": asynchronous,
                "evaluation.timeout_seconds": 60.0 if asynchronous else None,
            },
        )
        assert (result.status, failures(result)) == ("finished", "")
        scores[asynchronous] = history(result.run_dir, "eval/return_mean")[0]
    assert scores == {True: 5.0, False: 0.0}


@changes(RL, "evaluation.timeout_seconds", shown_by="dqn")
def test_an_evaluation_that_takes_longer_counts_as_hung_and_is_made_again(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two minutes pass as soon as the evaluation hangs, and none while it is made again."""
    token = tmp_path / "token"
    token.touch()
    pass_once(monkeypatch, lambda: not token.exists(), 120.0)
    result = fit(
        kind,
        tmp_path,
        "run",
        env=waiting(tmp_path / "never"),
        **{
            "evaluation.env": waiting(tmp_path / "never", 600.0, token=token),
            "evaluation.envs": 1,
            "evaluation.asynchronous": True,
            "evaluation.timeout_seconds": 120.0,
        },
    )
    assert "did not answer within 120 seconds" in failures(result)
    assert (result.status, result.exact) == ("finished", "expected")
    assert history(result.run_dir, "eval/return_mean") == [0.0, 0.0]


class Placed(Dataset[Any]):
    """Its examples say in which process they were made."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        return torch.tensor([float(os.getpid()), float(index)]), index % 2


class Seen(ludus.Model):
    """Keeps the batches that it learns from."""

    def training_step(self, batch: Any, batch_idx: int) -> dict[str, torch.Tensor]:
        self.__dict__.setdefault("seen", []).append(batch[0].clone())
        return super().training_step(batch, batch_idx)


@changes(TRAINERS, "settings.workers", shown_by="supervised, dqn")
def test_so_many_processes_load_data_or_step_envs_and_the_result_is_the_same(
    kind: str, tmp_path: Path
) -> None:
    if kind == "dqn":
        children = set()

        class Look:
            def before_train_step(self) -> None:
                children.update(psutil.Process().children(recursive=True))

        before = set(psutil.Process().children(recursive=True))
        trainer: Any = ludus.build_trainer(tiny(kind, **{"settings.workers": 2}))
        trainer.add(Look())
        trainer.fit(root=str(tmp_path))
        assert len(children - before) == 2
        own = torch.cat([part.flat.vectors[0] for part in (trainer.agent.learner,)])
        assert torch.equal(own, run(kind).moments[-1]["q"])
        return
    rows = {}
    for workers in (0, 2):
        config = tiny(kind, data=None, model=None, evaluate_every_epochs=0, batch_size=3)
        network = {"kind": "mlp", "inputs": 2, "widths": [], "outputs": 2, "activation": "relu"}
        model = Seen({**network, "layer_norm": False, "dropout": 0.0}, loss="cross_entropy")
        config = config.replace(**{"settings.workers": workers, "max_epochs": 1})
        ludus.Trainer(config, model=model, train_loader=Placed()).fit(
            root=str(tmp_path), name=f"run{workers}"
        )
        # The trial before the run has learned from a batch, too.
        rows[workers] = torch.cat(model.seen)[-12:]
    assert set(rows[0][:, 0].tolist()) == {float(os.getpid())}
    assert len(set(rows[2][:, 0].tolist()) - {float(os.getpid())}) == 2
    assert torch.equal(rows[0][:, 1], rows[2][:, 1])
