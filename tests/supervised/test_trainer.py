"""What a script may ask of a Trainer: its hooks, its length, its state."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import TensorDataset

import ludus
from ludus import Logger, Model, Trainer
from ludus.core.errors import ConfigError, HookError, LudusError
from tests.supervised.conftest import MLP, Tiny, history, lines, wines


class Recording(Trainer):
    """Writes down what happens."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.events: list[str] = []

    def before_train(self) -> None:
        self.events.append("before_train")

    def before_epoch(self) -> None:
        self.events.append(f"before_epoch {self.epoch}")

    def before_step(self) -> None:
        self.events.append("before_step")

    def train_step(self, batch: Any, batch_idx: int) -> Mapping[str, Any] | None:
        self.events.append(f"train_step {batch_idx}")
        return super().train_step(batch, batch_idx)

    def after_step(self) -> None:
        self.events.append("after_step")

    def evaluate(self, data: Any, training_mode: bool = False) -> dict[str, float]:
        if training_mode:
            assert data is self.eval_data
            self.events.append("evaluate")
        return super().evaluate(data, training_mode)

    def after_epoch(self) -> None:
        self.events.append(f"after_epoch {self.epoch}")

    def after_train(self) -> None:
        self.events.append("after_train")


def epoch_events(number: int, num_steps: int) -> list[str]:
    steps = [["before_step", f"train_step {i}", "after_step"] for i in range(num_steps)]
    flat = [event for step in steps for event in step]
    return [f"before_epoch {number}", *flat, "evaluate", f"after_epoch {number}"]


@pytest.mark.covers("000-M1")
def test_the_named_concepts_exist() -> None:
    """Model, Trainer, Evaluator, Logger and Storage are objects by these names."""
    for name in ("Model", "Trainer", "Evaluator", "Logger", "Storage"):
        assert isinstance(getattr(ludus, name), type)


@pytest.mark.covers("000-M2", "000-M3", "000-M11")
def test_the_usage_runs_as_written(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This very script, and it learns."""
    monkeypatch.chdir(tmp_path)
    config, model_config, logg_config = tiny(batch_size=4, max_epochs=1000), MLP, {"backends": []}

    trainer = Trainer(config)
    model = Model(model_config)
    logger = Logger(logg_config)
    trainer.set_model(model)
    trainer.set_logger(logger)
    trainer.fit(max_steps=1_000)

    run_dir = tmp_path / "runs" / "digits"
    assert trainer.run.counters["opt_steps"] == 1_000
    assert trainer.model is model
    assert trainer.logger is logger
    assert history(run_dir, "train/epoch_loss")[-1] < 0.1
    assert history(run_dir, "test/accuracy")[-1] > 0.9


@pytest.mark.covers("000-M5", "000-M7", "000-D6")
def test_hooks_come_around_training_epochs_and_steps(tiny: Tiny, tmp_path: Path) -> None:
    """Ten steps are an epoch of seven and one of three, nothing more."""
    trainer = Recording(tiny(max_epochs=50))
    result = trainer.fit(max_steps=10, root=str(tmp_path))
    expected = ["before_train", *epoch_events(0, 7), *epoch_events(1, 3), "after_train"]
    assert trainer.events == expected
    assert result.counters["opt_steps"] == 10
    assert result.counters["epoch"] == 2


@pytest.mark.covers("000-D6")
def test_max_steps_at_the_end_of_an_epoch_begins_no_other(tiny: Tiny, tmp_path: Path) -> None:
    trainer = Recording(tiny(max_epochs=50))
    result = trainer.fit(max_steps=14, root=str(tmp_path))
    assert trainer.events == [
        "before_train",
        *epoch_events(0, 7),
        *epoch_events(1, 7),
        "after_train",
    ]
    assert len(history(result.run_dir, "validation/epoch_loss")) == 2


@pytest.mark.covers("000-D6")
def test_max_steps_counts_optimisation_steps_not_batches(tiny: Tiny, tmp_path: Path) -> None:
    trainer = Recording(tiny(accumulate=3, max_epochs=50))
    result = trainer.fit(max_steps=4, root=str(tmp_path))
    # An epoch of seven batches has three steps: 3 + 3 + 1 batches.
    assert trainer.events.count("before_step") == 7 + 3
    assert result.counters["opt_steps"] == 4


@pytest.mark.covers("000-M4")
def test_the_steps_given_to_fit_are_made_however_few_epochs_the_config_has(
    tiny: Tiny, tmp_path: Path
) -> None:
    trainer = Recording(tiny(max_epochs=1))
    result = trainer.fit(max_steps=30, root=str(tmp_path))
    assert result.counters["opt_steps"] == trainer.num_train_steps == 30
    # It is told, and what is told is in the resolved config: a resume needs no argument.
    told = [line for line in lines(result.run_dir, "events.jsonl") if "reason" in line]
    assert told[0]["reason"] == "for fit(max_steps=30) 'max_epochs' is 5 rather than 1"
    assert ludus.read_config(f"{result.run_dir}/config.yaml").max_epochs == 5


def test_max_steps_that_the_epochs_never_reach_are_refused(tiny: Tiny, tmp_path: Path) -> None:
    told = (
        "'max_opt_steps' is 15, but 'max_epochs' 2 makes 14 optimisation steps: .* raise the latter"
    )
    with pytest.raises(ConfigError, match=told):
        Trainer(tiny(max_opt_steps=15, max_epochs=2)).fit(root=str(tmp_path))
    assert not any(tmp_path.iterdir())


def test_a_warm_up_as_long_as_the_run_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    schedule = {"kind": "constant", "warmup_steps": 14}
    told = "'learning_rate_schedule.warmup_steps' is 14, but the run has 14 .* make it smaller"
    with pytest.raises(ConfigError, match=told):
        Trainer(tiny(learning_rate_schedule=schedule, max_epochs=2)).fit(root=str(tmp_path))
    Trainer(tiny(learning_rate_schedule=schedule, max_epochs=3)).fit(root=str(tmp_path))


@pytest.mark.covers("000-M3")
@pytest.mark.parametrize("name", ["max_steps", "num_train_steps"])
def test_both_names_of_the_length_are_taken(tiny: Tiny, tmp_path: Path, name: str) -> None:
    trainer = Trainer(tiny(max_epochs=50))
    result = trainer.fit(**{name: 9}, root=str(tmp_path))  # type: ignore[arg-type]
    assert result.counters["opt_steps"] == 9
    assert trainer.num_train_steps == 9


@pytest.mark.covers("000-M3")
def test_two_different_lengths_are_refused(tiny: Tiny, tmp_path: Path) -> None:
    trainer = Trainer(tiny())
    with pytest.raises(ConfigError, match="max_steps=9 and num_train_steps=8; they mean the same"):
        trainer.fit(max_steps=9, num_train_steps=8, root=str(tmp_path))
    assert not list(tmp_path.iterdir())
    assert trainer.fit(9, num_train_steps=9, root=str(tmp_path)).counters["opt_steps"] == 9


@pytest.mark.covers("000-M4")
def test_the_argument_wins_else_the_config_decides(tiny: Tiny, tmp_path: Path) -> None:
    config = tiny(max_opt_steps=5, max_epochs=50)
    by_config = Trainer(config).fit(root=str(tmp_path), name="config")
    by_argument = Trainer(config).fit(max_steps=3, root=str(tmp_path), name="argument")
    assert by_config.counters["opt_steps"] == 5
    assert by_argument.counters["opt_steps"] == 3


def test_the_length_asked_for_stands_in_the_resolved_config(tiny: Tiny, tmp_path: Path) -> None:
    result = Trainer(tiny(engine="auto")).fit(max_steps=3, root=str(tmp_path))
    config = ludus.read_config(f"{result.run_dir}/config.yaml")
    assert config.max_opt_steps == 3
    assert config.engine == "tape"


@pytest.mark.covers("000-M4", "000-D5")
def test_a_saved_trainer_state_is_taken_up(tiny: Tiny, tmp_path: Path) -> None:
    """Fit(trainer_state=...) goes on from there, and never begins afresh."""
    first = Trainer(tiny(max_epochs=2))
    first.fit(root=str(tmp_path), name="first")
    second = Trainer(tiny(max_epochs=4))
    second.fit(None, first.state_dict(), root=str(tmp_path), name="second")
    straight = Trainer(tiny(max_epochs=4))
    straight.fit(root=str(tmp_path), name="straight")
    assert second.run.counters == straight.run.counters
    for name, tensor in straight.model.state_dict().items():
        assert tensor.equal(second.model.state_dict()[name])


@pytest.mark.covers("000-M4")
def test_a_state_of_another_trainer_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    state = {"run": {}, "model": {}}
    with pytest.raises(
        LudusError, match=r"the saved state has no .*optimizer.*; build the trainer"
    ):
        Trainer(tiny()).fit(trainer_state=state, root=str(tmp_path))


@pytest.mark.covers("000-M6")
def test_length_data_epoch_and_end_can_be_read(tiny: Tiny, tmp_path: Path) -> None:
    """Config, lengths, data, epoch, train_end."""

    class Looking(Trainer):
        ends: list[bool]

        def before_train(self) -> None:
            self.ends = []

        def before_epoch(self) -> None:
            self.ends.append(self.train_end)

        def after_train(self) -> None:
            self.ends.append(self.train_end)

    trainer = Looking(tiny(max_epochs=50))
    trainer.fit(max_steps=10, root=str(tmp_path))
    assert trainer.ends == [False, False, True]
    assert trainer.config.max_opt_steps == trainer.num_train_steps == 10
    assert trainer.epoch == 2
    assert trainer.train_data.length() == 7
    assert set(trainer.evaluate(trainer.eval_data)) == {
        "validation/epoch_loss",
        "validation/epoch_accuracy",
    }


@pytest.mark.covers("000-M7")
def test_a_hook_may_take_the_run_and_may_end_it(tiny: Tiny, tmp_path: Path) -> None:
    class Impatient(Trainer):
        def after_step(self, run: ludus.Run) -> None:
            if run.counters["opt_steps"] == 4:
                run.stop("enough")

    result = Impatient(tiny()).fit(root=str(tmp_path))
    assert (result.status, result.reason) == ("stopped", "enough")
    assert result.counters["opt_steps"] == 4
    # The test is always done.
    assert len(history(result.run_dir, "test/accuracy")) == 1


def test_a_train_step_of_ones_own_replaces_the_update(tiny: Tiny, tmp_path: Path) -> None:
    class Still(Trainer):
        def train_step(self, batch: Any, batch_idx: int) -> Mapping[str, Any] | None:
            self.run.counters["opt_steps"] += 1
            return {"train/rows": float(len(batch[0]))}

    trainer = Still(tiny())
    trainer.set_model(Model(MLP))
    before = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
    result = trainer.fit(max_steps=7, root=str(tmp_path))
    assert all(tensor.equal(before[name]) for name, tensor in trainer.model.state_dict().items())
    assert history(result.run_dir, "train/rows") == [pytest.approx(106 / 7)]
    assert history(result.run_dir, "train/epoch_loss") == []


class Counter:
    """A callback with state of its own."""

    def __init__(self) -> None:
        self.num_epochs = 0

    def after_epoch(self) -> None:
        self.num_epochs += 1

    def state_dict(self) -> dict[str, Any]:
        return {"num_epochs": self.num_epochs}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.num_epochs = state["num_epochs"]


class Forgetful:
    """A callback without state."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def after_epoch(self, run: ludus.Run) -> None:
        self.seen.append(run.counters["epoch"])


def test_callbacks_are_added_and_only_their_state_survives(tiny: Tiny, tmp_path: Path) -> None:
    first = Trainer(tiny(max_epochs=2))
    first.add(Counter())
    first.add(Forgetful())
    assert first.fit(root=str(tmp_path)).counters["epoch"] == 2

    second, counter, forgetful = Trainer(tiny(max_epochs=5)), Counter(), Forgetful()
    second.add(counter)
    second.add(forgetful)
    assert second.fit(resume=True, root=str(tmp_path)).counters["epoch"] == 5
    assert counter.num_epochs == 5
    assert forgetful.seen == [2, 3, 4]


def test_a_run_with_a_stateful_callback_refuses_to_resume_without_it(
    tiny: Tiny, tmp_path: Path
) -> None:
    first = Trainer(tiny(max_epochs=1))
    first.add(Counter())
    first.fit(root=str(tmp_path))
    with pytest.raises(LudusError, match=r"holds callback\.counter, which this trainer lacks"):
        Trainer(tiny(max_epochs=2)).fit(resume=True, root=str(tmp_path))


def test_a_hook_that_fits_no_node_is_refused_with_the_nearest_name(
    tiny: Tiny, tmp_path: Path
) -> None:
    class Misspelt(Trainer):
        def before_epok(self) -> None: ...

    with pytest.raises(HookError, match=r"before_epok fits no node.*Did you mean 'before_epoch'"):
        Misspelt(tiny()).fit(root=str(tmp_path))

    class Callback:
        def after_validation(self) -> None: ...

    trainer = Trainer(tiny())
    trainer.add(Callback())
    with pytest.raises(HookError, match=r"after_validation .* mean 'after_validate'"):
        trainer.fit(root=str(tmp_path))
    assert not list(tmp_path.iterdir())


def test_an_evaluator_of_ones_own_needs_no_validation_data(tiny: Tiny, tmp_path: Path) -> None:
    class Weighing:
        def evaluate(self, agent: Model) -> tuple[float, dict[str, float]]:
            weight = float(sum(p.abs().sum().item() for p in agent.module.parameters()))
            return weight, {"validation/epoch_loss": weight}

    trainer = Trainer(tiny(data=None), train_loader=TensorDataset(*wines()))
    trainer.set_evaluator(Weighing())
    result = trainer.fit(root=str(tmp_path))
    values = history(result.run_dir, "validation/epoch_loss")
    assert len(values) == 2
    assert trainer.evaluate(trainer.eval_data) == {"validation/epoch_loss": values[-1]}


def test_a_logger_of_ones_own_gets_every_record(tiny: Tiny, tmp_path: Path) -> None:
    trainer = Trainer(tiny())
    trainer.set_logger(Logger({"backends": [{"kind": "csv"}]}))
    result = trainer.fit(root=str(tmp_path))
    assert (Path(str(result.run_dir)) / "metrics.csv").exists()
    assert len(lines(result.run_dir)) == 3


@pytest.mark.parametrize("display", ["rich", "plain"])
@pytest.mark.covers("000-M5")
def test_the_display_is_open_between_the_first_hook_and_the_last(
    tiny: Tiny, tmp_path: Path, capfd: pytest.CaptureFixture[str], display: str
) -> None:
    """And what is logged after it closed, such as the final test, is still printed."""

    class Watching(Trainer):
        seen: list[tuple[str, bool]]

        def note(self, name: str) -> None:
            self.seen.append((name, self.terminal_display.is_open))

        def before_train(self) -> None:
            self.seen = []
            self.note("before_train")

        def before_epoch(self) -> None:
            self.note("before_epoch")

        def after_epoch(self) -> None:
            self.note("after_epoch")

        def after_train(self) -> None:
            self.note("after_train")
            print("the screen is mine")

    trainer = Watching(tiny(max_epochs=1, **{"settings.display": display}))
    trainer.fit(root=str(tmp_path))
    assert trainer.seen == [
        ("before_train", False),
        ("before_epoch", True),
        ("after_epoch", True),
        ("after_train", False),
    ]
    before, after = capfd.readouterr().out.split("the screen is mine")
    assert "validation/epoch_loss" in before
    assert "test/accuracy" in after


@pytest.mark.covers("000-M5")
def test_a_run_that_is_taken_up_is_shown_at_once(tiny: Tiny, tmp_path: Path) -> None:
    class Pausing(Trainer):
        is_shown: bool | None = None
        pause_at = 1

        def after_step(self, run: ludus.Run) -> None:
            run.interrupted = run.counters["opt_steps"] == self.pause_at
            self.is_shown = self.terminal_display.is_open

    config = tiny(max_epochs=1, **{"settings.display": "plain"})
    assert Pausing(config).fit(root=str(tmp_path)).status == "interrupted"
    resumed = Pausing(config)
    resumed.pause_at = -1
    assert resumed.fit(root=str(tmp_path), resume=True).status == "finished"
    assert resumed.is_shown


def longer(tiny: Tiny, root: Path, **options: Any) -> Any:
    """Return how a run of one epoch of seven steps ends that is begun, or made longer, by `fit`."""
    return Trainer(tiny(max_epochs=1)).fit(root=str(root), **options)


def test_a_run_that_ended_within_an_epoch_is_made_longer_by_fit(tiny: Tiny, tmp_path: Path) -> None:
    """The epoch that ended early is over, so it takes another, also where max_epochs says one."""
    for max_steps, epochs in ((3, 1), (5, 2), (12, 3), (13, 4)):
        result = longer(tiny, tmp_path, max_steps=max_steps, resume=max_steps > 3)
        assert (result.status, result.counters["opt_steps"]) == ("finished", max_steps)
        assert result.counters["epoch"] == epochs


def test_a_run_made_longer_and_killed_goes_on_with_the_epochs_it_was_given(
    tiny: Tiny, tmp_path: Path
) -> None:
    longer(tiny, tmp_path, max_steps=3)

    class Killed(BaseException):
        pass

    def kill(trainer: Any) -> None:
        if trainer.run.counters["opt_steps"] == 4:
            raise Killed

    trainer = Trainer(tiny(max_epochs=1))
    trainer.add(type("Kill", (), {"after_step": lambda self: kill(trainer)})())
    with pytest.raises(Killed):
        trainer.fit(max_steps=5, root=str(tmp_path), resume=True)
    again = Trainer(tiny(max_epochs=1))
    again.add(type("Kill", (), {"after_step": lambda self: None})())
    assert again.fit(max_steps=5, root=str(tmp_path), resume=True).counters["opt_steps"] == 5


def test_more_steps_without_more_epochs_are_refused_for_a_run_that_has_ended(
    tiny: Tiny, tmp_path: Path
) -> None:
    Trainer(tiny(max_epochs=1, max_steps=3)).fit(root=str(tmp_path))
    told = r"'max_opt_steps' is 5, but the run has ended, after 3 steps in 1 of 1 epochs.* to 2 at least"
    with pytest.raises(ConfigError, match=told):
        Trainer(tiny(max_epochs=1, max_steps=5)).fit(root=str(tmp_path), resume=True)
    done = Trainer(tiny(max_epochs=2, max_steps=5)).fit(root=str(tmp_path), resume=True)
    assert done.counters["opt_steps"] == 5
