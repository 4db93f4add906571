"""A `_train` that is written by hand is called every round, with all that two roles need."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ludus
from ludus.core.errors import LudusError
from ludus.core.runtime import InMemoryRuntime
from ludus.games import DQNTrainer, TwoRoleTrainer
from ludus.nn.optimizer import Sgd
from tests.contracts.trainers.two_roles_by_hand import ByHand, make
from tests.games.dqn.small import small_dqn


def flat(module: nn.Module) -> Tensor:
    return torch.cat([weight.detach().flatten() for weight in module.parameters()])


def in_memory(trainer: Any) -> Any:
    trainer.set_logger(ludus.Logger({"backends": []}))
    return trainer.fit(runtime=InMemoryRuntime)


@pytest.mark.covers("001-M3", "001-M4")
def test_a_train_of_ones_own_is_called_every_round_and_moves_both_roles() -> None:
    calls = []

    class Counting(ByHand):
        def _train(self) -> dict[str, float]:
            calls.append(self.run.counters["round"])
            return super()._train()

    trainer = Counting(small_dqn(engine="auto"))
    before = {role: flat(trainer.get_net(role)) for role in ("host", "agent")}
    result = in_memory(trainer)
    assert (result.status, calls) == ("finished", list(range(6)))
    assert trainer.run.counters["opt_steps"] == 12
    for role, old in before.items():
        assert not torch.equal(old, flat(trainer.get_net(role)))
        assert int(trainer.get_replay_buffer(role).size) > 0


@pytest.mark.covers("001-M4")
def test_a_step_by_hand_is_the_step_of_torch_at_the_rate_of_the_schedule() -> None:
    schedule = {"kind": "linear", "warmup_steps": 0, "final": 0.0, "total_steps": None}
    sgd = Sgd(kind="sgd", learning_rate=0.1, momentum=0.9, nesterov=False, weight_decay=0.0)
    config = small_dqn(**{"host.optimizer": sgd, "host.learning_rate_schedule": schedule})
    trainer = ByHand(config, host_net=nn.Linear(18, 4))
    twin = nn.Linear(18, 4)
    twin.load_state_dict(trainer.host_net.state_dict())
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9)
    obs = torch.rand(5, 18)
    for step in range(3):
        for net, own in ((trainer.host_net, trainer.host_optimizer), (twin, optimizer)):
            own.zero_grad()
            net(obs).square().mean().backward()
            if own is optimizer:
                optimizer.param_groups[0]["lr"] = trainer.host_lr_scheduler(step)
            own.step()
    assert trainer.host_lr_scheduler(2) < 0.1
    torch.testing.assert_close(flat(trainer.host_net), flat(twin))


def test_gradients_that_were_set_to_none_are_found_again() -> None:
    trainer = make()
    before = flat(trainer.host_net)
    trainer.host_optimizer.zero_grad(set_to_none=True)
    for weight in trainer.host_net.parameters():
        weight.grad = None
    trainer.host_net(torch.rand(5, 18)).square().mean().backward()
    assert float(trainer.host_optimizer.step()) > 0
    assert not torch.equal(before, flat(trainer.host_net))


def test_metrics_that_it_returns_are_logged(tmp_path: Path) -> None:
    make(**{"settings.loggers": [{"kind": "jsonl"}]}).fit(root=str(tmp_path), name="run")
    assert '"host/my_loss"' in (tmp_path / "run" / "metrics.jsonl").read_text()


def test_train_called_again_goes_on_and_ends_as_one_run_does(tmp_path: Path) -> None:
    for cls, engine in ((ByHand, "auto"), (DQNTrainer, "tape")):
        config = small_dqn(engine=engine, keep_every_rounds=0)
        halves, whole = cls(config), cls(config)
        root = str(tmp_path / cls.__name__)
        assert halves.train(2, root=root, name="halves").status == "finished"
        assert halves.run.counters["round"] == 2
        halves.train(4, root=root, name="halves")
        assert halves.run.counters["round"] == 6
        whole.train(6, root=root, name="whole")
        for role in ("host", "agent"):
            assert torch.equal(flat(halves.get_net(role)), flat(whole.get_net(role)))


class Silent(TwoRoleTrainer):
    """Writes no _train."""


class Wrong(TwoRoleTrainer):
    """Returns what no metrics are."""

    def _train(self) -> Any:
        return 3


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (
            lambda: in_memory(Wrong(small_dqn(engine="auto"))),
            "_train returned a int; return metrics",
        ),
        (lambda: in_memory(make(engine="tape")), "'engine' is tape, .* set it to auto or eager"),
        (lambda: in_memory(make(layerwise_logging=True)), "'layerwise_logging' is true, but the"),
        (lambda: make().train(0), "train was given 0; give the rounds"),
        (lambda: in_memory(Silent(small_dqn(engine="auto"))), r"Silent must write _train\(\)"),
    ],
)
def test_a_mistake_is_told_in_a_sentence(call: Any, told: str) -> None:
    with pytest.raises(LudusError, match=told):
        call()
