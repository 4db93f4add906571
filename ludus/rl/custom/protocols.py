"""Protocols for a script's own agents, envs, buffers, step processors and recorders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from ludus.data.replay.ring import Batch as BatchBase
from ludus.envs.config import AnyEnv as Env
from ludus.rl.custom.agent import CustomAgent as Agent
from ludus.rl.sampling.sampler import Processor as StepProcessorBase
from ludus.rl.sampling.step_processor import Array, SteppedEnv as Step
from ludus.session.record import Record


class ReplayBufferBase(Protocol):
    """Stores transitions and samples batches; it is a part, so a resume restores it."""

    def push(
        self, obs_ND: Array, actions_Nk: Array, rewards_N: Array, discounts_N: Array,
        next_obs_ND: Array, next_masks: Array | None = None, /,
    ) -> None:  # fmt: skip
        """Add N transitions; the arrays are reused, so copy what is stored."""

    def sample(self, batch_size: int | None = None, /) -> Any:
        """Sample a batch for the agent."""

    @property
    def size(self) -> int:
        """Number of stored transitions; learning starts once there is one."""

    def state_dict(self) -> Mapping[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any], /) -> None: ...


class Recorder(Protocol):
    """Receives every record of a run; its `close()`, if any, is called at the end."""

    def write(self, record: Record, /) -> None: ...


__all__ = [
    "Agent",
    "BatchBase",
    "Env",
    "Record",
    "Recorder",
    "ReplayBufferBase",
    "Step",
    "StepProcessorBase",
]
