"""A run looks at its pool without a trace, and can be asked to pause while it does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ludus
from ludus.core.runtime import InMemoryRuntime
from tests.active.conftest import small_active
from tests.supervised.conftest import lines


class Counted(nn.Module):
    """Keeps in a buffer how often it was called, in any mode, and lets that move its outputs."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(13, 6), nn.ReLU(), nn.Linear(6, 3))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, inputs: Tensor) -> Tensor:
        self.calls += 1
        outputs: Tensor = self.layers(inputs) * (1 + self.calls / 100)
        return outputs


def weights(place: Path, **changes: Any) -> dict[str, Tensor]:
    trainer: Any = ludus.build_trainer(
        small_active(model=None, engine="eager", evaluation__keep=0, max_rounds=2, **changes)
    )
    torch.manual_seed(0)
    trainer.set_model(Counted())
    trainer.fit(root=str(place), name="counted")
    found: dict[str, Tensor] = trainer.model.state_dict()
    return found


def test_what_is_measured_changes_no_buffer_of_the_network(tmp_path: Path) -> None:
    plain = weights(tmp_path / "plain", calibration=None, evaluate_every_epochs=0)
    assert int(plain["calls"]) > 0
    more = {"calibration": {"bins": 5, "temperature": True}, "evaluate_every_epochs": 1}
    looked = weights(tmp_path / "looked", **more)
    assert all(torch.equal(looked[name], one) for name, one in plain.items())


@pytest.mark.parametrize("stage", ["query", "test"])
def test_a_run_is_interrupted_in_the_middle_of_its_pool_and_ends_as_if_it_had_not_been(
    stage: str, tmp_path: Path
) -> None:
    calls: list[int] = []

    class Pressing(Counted):
        """Asks the run to pause in the second batch of the pool that it sees in the second round."""

        def forward(self, inputs: Tensor) -> Tensor:
            frames = {frame.name for frame in trainer.run.cursor} if trainer.run.cursor else set()
            is_there = is_pressed and "round" in frames and trainer.run.round("round") == 1
            if is_there and not self.training and len(inputs) == 3 and here() == stage:
                calls.append(len(inputs))
                if len(calls) == 2:
                    trainer.run.interrupted = True
            return super().forward(inputs)

    def here() -> str:
        is_fitted = trainer.pool.num_labelled == len(trainer.pool.asked) > 6
        return "test" if is_fitted else "query"

    stopping = {
        "max_labels": None,
        "target_accuracy": None,
        "stable_share": 1.0,
        "stable_rounds": 9,
    }

    def make() -> Any:
        made: Any = ludus.build_trainer(
            small_active(
                model=None, engine="eager", evaluation__keep=0, evaluate_every_epochs=0, max_rounds=2,
                calibration=None, stopping=stopping, scoring_batch_size=3,
            )
        )  # fmt: skip
        torch.manual_seed(0)
        made.set_model(Pressing())
        return made

    is_pressed = True
    trainer = make()
    result = trainer.fit(root=str(tmp_path), name="paused")
    assert result.status == "interrupted"
    # The batch under way is the last one, of some thirty.
    assert len(calls) == 2
    is_pressed = False
    trainer = make()
    result = trainer.fit(root=str(tmp_path), name="paused", resume=True)
    trainer = make()
    whole = trainer.fit(root=str(tmp_path), name="whole")
    assert (result.status, whole.status) == ("finished", "finished")
    assert lines(result.run_dir) == lines(whole.run_dir)


def test_layers_that_have_no_shape_yet_get_it_where_they_are_first_looked_at() -> None:
    layers = nn.Sequential(nn.LazyLinear(6), nn.LazyBatchNorm1d(), nn.ReLU(), nn.LazyLinear(3))
    trainer: Any = ludus.build_trainer(small_active(model=None, max_rounds=1, evaluation__keep=0))
    trainer.set_model(layers)
    assert trainer.fit(runtime=InMemoryRuntime).status == "finished"
    assert layers[1].num_batches_tracked == trainer.run.counters["opt_steps"]
