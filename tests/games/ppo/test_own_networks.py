"""Networks of a script under PPO on device games: a resume is exact, or says why it is not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ludus
from ludus.core.errors import ConfigError
from ludus.games.trainers.fused_ppo import PPOTrainer
from tests.games.ppo.small import small_ppo

Said = tuple[Tensor, Tensor, None]


class Trunk(nn.Module):
    """A shared trunk with two heads."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(4, 8), *layers, nn.Tanh())
        self.policy_head = nn.Linear(8, 2)
        self.value_head = nn.Linear(8, 1)

    def forward(self, obs: Tensor) -> Said:
        seen = self.trunk(obs)
        return self.policy_head(seen), self.value_head(seen).squeeze(1), None


class Counting(Trunk):
    """What it says depends on how often it was asked, which a buffer holds."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, obs: Tensor) -> Said:
        self.calls += 1
        logits, values, _ = super().forward(obs)
        return logits * (1 + 0.01 * self.calls), values, None


class Remembering(Trunk):
    """The same, but nothing saves what it remembers."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, obs: Tensor) -> Said:
        self.calls += 1
        logits, values, _ = super().forward(obs)
        return logits * (1 + 0.01 * self.calls), values, None


class Extra(Remembering):
    """The same, and torch is told of it."""

    def get_extra_state(self) -> Any:
        return {"calls": self.calls}

    def set_extra_state(self, state: Any) -> None:
        self.calls = state["calls"]


class Tied(Trunk):
    """Its value head is a part of its policy's."""

    def __init__(self) -> None:
        super().__init__()
        self.value_head = nn.Linear(2, 1)

    def forward(self, obs: Tensor) -> Said:
        logits = self.policy_head(self.trunk(obs))
        return logits, self.value_head(logits).squeeze(1), None


def frozen() -> Trunk:
    network = Trunk()
    network.trunk.requires_grad_(False)
    return network


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "a shared trunk": Trunk,
    "batch norm": lambda: Trunk(nn.BatchNorm1d(8)),
    "dropout": lambda: Trunk(nn.Dropout(0.5)),
    "a frozen trunk": frozen,
    "a buffer that counts": Counting,
    "extra state": Extra,
    "a head on a head": Tied,
}


class Asked(PPOTrainer):
    """Is asked to pause after three rounds."""

    is_to_pause = True

    def after_round(self) -> None:
        if self.is_to_pause and self.run.counters["round"] == 3:
            self.run.interrupted = True


def fitted(make: Callable[[], nn.Module], root: Path, device: str = "cpu", **options: Any) -> Asked:
    torch.manual_seed(5)
    network = make().to(device)
    trainer = Asked(small_ppo(name="run", engine="auto", **{"settings.device": device}))
    trainer.is_to_pause = options.pop("is_to_pause", False)
    trainer.set_model(network)
    trainer.fit(root=str(root), **options)
    return trainer


@pytest.mark.parametrize("name", NETWORKS)
def test_a_run_of_any_network_ends_as_if_never_interrupted(name: str, tmp_path: Path) -> None:
    check_interrupted(NETWORKS[name], tmp_path, "cpu")


def check_interrupted(make: Callable[[], nn.Module], tmp_path: Path, device: str) -> None:
    whole = fitted(make, tmp_path / "whole", device)
    assert fitted(make, tmp_path / "cut", device, is_to_pause=True).run.counters["round"] == 3
    resumed = fitted(make, tmp_path / "cut", device, resume=True)
    ends = [one.learner.weights() for one in (whole, resumed)]
    assert ends[0].keys() == ends[1].keys()
    for key, tensor in ends[0].items():
        assert torch.equal(tensor, ends[1][key]), key
    files = [tmp_path / one / "run" / "metrics.jsonl" for one in ("whole", "cut")]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert resumed.inexact_because() == []


def test_a_frozen_trunk_stays_and_the_heads_learn() -> None:
    torch.manual_seed(5)
    before = frozen()
    trainer = fitted_in_memory(frozen)
    for (key, tensor), (_, old) in zip(
        trainer.network.named_parameters(), before.named_parameters(), strict=True
    ):
        assert torch.equal(tensor, old) == key.startswith("trunk"), key


def fitted_in_memory(make: Callable[[], nn.Module]) -> Any:
    from ludus.core.runtime import InMemoryRuntime

    torch.manual_seed(5)
    trainer: Any = ludus.build_trainer(small_ppo(engine="auto"))
    trainer.set_model(make())
    trainer.fit(runtime=InMemoryRuntime)
    return trainer


def test_statistics_of_a_batch_norm_follow_what_is_learned_from() -> None:
    trainer = fitted_in_memory(lambda: Trunk(nn.BatchNorm1d(8)))
    norm = trainer.network.trunk[1]
    assert int(norm.num_batches_tracked) == trainer.run.counters["opt_steps"]
    assert norm.running_mean.abs().max() > 0


def test_what_a_network_remembers_by_itself_is_named() -> None:
    trainer = fitted_in_memory(Remembering)
    assert any("Remembering" in reason for reason in trainer.inexact_because())


def test_a_resume_without_the_network_of_the_script_is_refused(tmp_path: Path) -> None:
    fitted(Trunk, tmp_path, is_to_pause=True)
    with pytest.raises(Exception, match="Trunk"):
        PPOTrainer(small_ppo(name="run", engine="auto")).fit(root=str(tmp_path), resume=True)


def test_numbers_of_the_wrong_shape_are_refused_before_anything_is_trained() -> None:
    class Wide(Trunk):
        def forward(self, obs: Tensor) -> Any:
            logits, values, _ = super().forward(obs)
            return logits, values.unsqueeze(1), None

    trainer: Any = ludus.build_trainer(small_ppo())
    trainer.set_model(Wide())
    with pytest.raises(ConfigError, match=r"returns \(\(2, 2\), \(2, 1\), None\)"):
        trainer.prepare(max_steps=None)
