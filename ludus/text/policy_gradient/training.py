"""The training of one group by gradients: its model at the server, and how far it was trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from ludus.core import states
from ludus.core.errors import ConfigError, RunError
from ludus.core.services import JournalProtocol
from ludus.text.groups import PureTextSharedModelGroup
from ludus.text.policy_gradient.config import PolicyGradientParameters
from ludus.text.provider import Provider
from ludus.text.training_client import AdamStep, Loss, TrainingClient, TrainingDatum

JOURNAL = "trainings"
Step = tuple[Loss, Sequence[TrainingDatum], Mapping[str, float], AdamStep]
"""The loss of a gradient step, its batch, the options of the loss, and the numbers of the optimizer."""


@runtime_checkable
class TrainsByGradients(Protocol):
    """A provider whose models take gradient steps."""

    async def create_training(
        self, base_model: str, *, lora_rank: int | None, seed: int
    ) -> TrainingClient:
        """Return the client of a new model."""

    async def reopen_training(self, base_model: str) -> TrainingClient:
        """Return a client without a model, to load the state of one that was trained before."""


class GroupTraining:
    """A part: which model it is, and how many requests it was sent."""

    derived = ("_client", "_state", "_journal")

    def __init__(
        self,
        group: PureTextSharedModelGroup,
        provider: Provider,
        section: PolicyGradientParameters,
        *,
        seed: int,
        journal: Callable[[str], JournalProtocol],
    ) -> None:
        """`journal` is `run.journal`: the model of a stage that is repeated after a kill is used again."""
        if not isinstance(provider, TrainsByGradients):
            raise ConfigError(
                f"the provider '{provider.config.kind}' trains no models by gradients; use tinker"
            )
        self._group, self._provider, self._section, self._seed = group, provider, section, seed
        self._base_model = group.model
        self._journal = journal
        self._client: TrainingClient | None = None
        self._state: dict[str, Any] | None = None
        self.num_saved = 0
        """How often the weights were saved for sampling: the number of the next name."""

    async def create(self) -> None:
        """Create the model, once in a run."""
        journal = self._journal(JOURNAL)
        if (found := journal.get(self._group.name)) is not None:
            self._state, self._client = found, None
            return
        self._client = await self._provider.create_training(
            self._base_model, lora_rank=self._section.lora_rank, seed=self._seed
        )
        journal.put(self._group.name, self._client.state_dict())

    async def client(self) -> TrainingClient:
        """Return the client, connected to the model that it was when it was saved."""
        if self._client is None:
            if self._state is None:
                raise RunError(
                    f"the group '{self._group.name}' has no model to train; resume from a checkpoint after"
                    " create_models"
                )
            self._client = await self._provider.reopen_training(self._base_model)
            self._client.load_state_dict(self._state)
        return self._client

    async def steps(self, order: Sequence[Step]) -> int:
        """Take gradient steps, save the weights for sampling, and return the number of steps.

        The group switches to the saved weights when its next model is taken.
        """
        client = await self.client()
        for loss, batch, options, numbers in order:
            await client.forward_backward(batch, loss, config=options or None)
            await client.optim_step(numbers)
        self._group.next_model = await client.save_weights_for_sampler(f"step-{self.num_saved:06d}")
        self.num_saved += 1
        return len(order)

    def state_dict(self) -> dict[str, Any]:
        """Return the model and the number of its requests."""
        state = self._state if self._client is None else self._client.state_dict()
        return {"client": state, "num_saved": self.num_saved}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore them; the client connects when it is used."""
        states.check_keys(state, "client", "num_saved")
        self.num_saved = states.whole(state, "num_saved")
        self._state = None if state["client"] is None else dict(states.mapping(state, "client"))
        self._client = None
