"""Networks that hold more than weights, or do more than compute: what a run must keep, or say."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

import ludus
from ludus.config.registry import register
from ludus.config.sections import StrictConfig
from tests.rl.small import small

Part = Literal[
    "dropout", "batch_norm", "running_mean", "replaced_mean", "fleeting_mean", "frozen", "extra",
    "counter", "branch", "restless", "buffers", "all",
]  # fmt: skip
WIDTH = 8


class RunningMean(nn.Module):
    """Subtracts the mean of what it was trained on."""

    def __init__(self, width: int, *, persistent: bool = True) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width), persistent=persistent)
        self.register_buffer("count", torch.zeros((), dtype=torch.int64), persistent=persistent)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.mean.lerp_(x.detach().mean(0), 0.1)
            self.count.add_(1)
        return x - self.mean


class ReplacedMean(RunningMean):
    """The same, but with a new tensor each time, as much code on the web has it."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return x - self.mean


class RestlessMean(RunningMean):
    """The same in every pass, as if evaluation were training."""

    def forward(self, x: Tensor) -> Tensor:
        self.mean.lerp_(x.detach().mean(0), 0.1)
        return x - self.mean


class Counter(nn.Module):
    """Scales by how often it was trained, which it keeps to itself."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += self.training
        return x * (1 + 0.01 * self.calls)


class SavedCounter(Counter):
    """The same, kept as torch has it."""

    def get_extra_state(self) -> Any:
        return {"calls": self.calls}

    def set_extra_state(self, state: Any) -> None:
        self.calls = state["calls"]


class Branch(nn.Module):
    """Does one thing or another, by what it is given."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if x.sum() > 0 else x - 1


class OddConfig(StrictConfig):
    """Which oddity."""

    kind: Literal["tests_odd", "tests_odd_known"]
    """Whether it says of itself that it does the same every time."""
    part: Part
    """The oddity."""


def layers_of(part: Part) -> list[nn.Module]:
    """Return what stands between the two layers."""
    match part:
        case "dropout":
            return [nn.Dropout(0.3)]
        case "batch_norm":
            return [nn.BatchNorm1d(WIDTH)]
        case "running_mean":
            return [RunningMean(WIDTH)]
        case "replaced_mean":
            return [ReplacedMean(WIDTH)]
        case "fleeting_mean":
            return [RunningMean(WIDTH, persistent=False)]
        case "frozen":
            return [nn.Linear(WIDTH, WIDTH).requires_grad_(False)]
        case "extra":
            return [SavedCounter()]
        case "counter":
            return [Counter()]
        case "branch":
            return [Branch()]
        case "restless":
            return [RestlessMean(WIDTH)]
        case "buffers":
            return [nn.BatchNorm1d(WIDTH), RunningMean(WIDTH)]
        case "all":
            return [nn.BatchNorm1d(WIDTH), RunningMean(WIDTH), nn.Dropout(0.3)]


@register("network", "tests_odd")
class Odd(nn.Module):
    """Two layers with an oddity in the middle."""

    Config = OddConfig

    def __init__(self, config: OddConfig, obs_shape: tuple[int, ...]) -> None:
        super().__init__()
        middle = layers_of(config.part)
        # Without a bias, which batch norm would cancel: Adam would follow its rounding.
        self.layers = nn.Sequential(
            nn.Linear(obs_shape[0], WIDTH, bias=False),
            *middle,
            nn.Tanh(),
            nn.Linear(WIDTH, WIDTH),
            nn.Tanh(),
        )
        self.num_features = WIDTH

    def forward(self, obs: Tensor) -> Tensor:
        found: Tensor = self.layers(obs)
        return found


@register("network", "tests_odd_known")
class OddKnown(Odd):
    """The same, vouched for."""

    is_repeatable = True


for _kind in (RunningMean, RestlessMean, ReplacedMean, Branch, SavedCounter, Counter):
    # Their `tests_odd` is refused for its own class, so these may be vouched for.
    _kind.is_repeatable = True  # type: ignore[attr-defined]


KINDS = ("dqn", "iqn", "sac", "ppo")


def odd(kind: str, part: str, *, known: bool = False, **changes: Any) -> Any:
    """Return the config of a small run whose network has this oddity."""
    length = {"max_env_steps": 96} if kind == "ppo" else {"steps.max_opt_steps": 16}
    network = {"kind": "tests_odd_known" if known else "tests_odd", "part": part}
    config = small(kind, **{"engine": "tape", **length, **changes})
    return config.replace(network=network)


def prepared(config: Any) -> Any:
    trainer: Any = ludus.build_trainer(config)
    trainer.prepare(max_steps=None)
    return trainer


def fitted(config: Any, root: Path, name: str = "run") -> Any:
    trainer: Any = ludus.build_trainer(config)
    trainer.result = trainer.fit(root=str(root), name=name)
    return trainer


def engine_of(agent: Any) -> Any:
    """Return what executes an agent's update, without what looks at the networks."""
    executed = agent.execute
    while hasattr(executed, "update"):
        executed = executed.update
    return executed


def batch_for(agent: Any) -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(3)
    return tuple(
        None if x is None else torch.rand(x.shape, generator=generator)
        for x in agent.example_inputs()
    )
