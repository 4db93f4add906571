"""The trainer kind `spg`: Stackelberg policy gradients on the sequence of the protocol, leaders first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from torch import nn

from ludus.arena.libraries import ValueEstimators
from ludus.arena.objectives.spg import Spg, SpgParameters, learning_groups
from ludus.arena.rl_config import RlHyperParameters
from ludus.arena.rl_trainer import TensorDictRlTrainer
from ludus.config.registry import register_trainer


class SpgHyperParameters(RlHyperParameters):
    """The parameters of a run of Stackelberg policy gradients in the arena."""

    spg: SpgParameters
    """The parameters of the update."""

    def problems(self) -> Iterator[str]:
        """Yield problems that involve several keys."""
        before = list(super().problems())
        yield from before
        if before:
            return
        steps, size = (
            self.frames_per_batch // self.rl.rollouts_per_iteration,
            self.rl.minibatch_size,
        )
        if size % steps:
            yield (
                f"'rl.minibatch_size' is {size}, but spg learns from whole episodes of {steps} steps; make"
                f" it a multiple of {steps}"
            )
        kind = self.spg.variant.kind
        clipped = "pola" if kind == "lola" else f"p{kind}"
        if self.rl.num_epochs > 1 and not hasattr(self.spg.variant, "clip"):
            yield (
                f"'rl.num_epochs' is {self.rl.num_epochs}, but 'spg.variant' {kind} is right for the weights"
                f" that played the episodes, and a second epoch has others; set it to 1, or take {clipped},"
                " which clips"
            )
        yield from self._problems_of_sequence()
        if self.engine == "compiled":
            yield (
                "'engine' is compiled, but spg takes second derivatives, which torch's compiler cannot;"
                " set it to auto"
            )
        for name, section in self.agents.items():
            other = getattr(section, "shares_body_of", None)
            if other is not None:
                yield (
                    f"'agents.{name}.shares_body_of' is {other}, but under spg each agent moves parameters of"
                    " its own; set it to null"
                )

    def _problems_of_sequence(self) -> Iterator[str]:
        sequence, handler = self.spg.stackelberg_sequence, self.handler()
        if sequence is None:
            return
        if not handler.has_rounds:
            yield (
                "'spg.stackelberg_sequence' is given, but in a parallel env all agents act at once, and"
                " iterations do not begin with episodes; set it to null"
            )
            return
        named, agents = [name for group in sequence for name in group], handler.agent_names
        if sorted(named) != sorted(agents):
            yield (
                f"'spg.stackelberg_sequence' holds {', '.join(named) or 'nobody'}; it must hold each agent of"
                f" the protocol once: {', '.join(agents)}"
            )


@register_trainer("spg")
class SpgTrainer(TensorDictRlTrainer):
    """Leaders, such as verifiers, learn by anticipating the response of their followers."""

    Config = SpgHyperParameters
    keeps_episodes_whole: ClassVar[bool] = True
    config: SpgHyperParameters

    def _get_loss_module_and_gae(self) -> tuple[nn.Module, nn.Module | None]:
        """Return the loss of the sequence, and generalised advantage estimation."""
        rl, handler = self.config.rl, self.scenario_instance.protocol_handler
        sequence = self.config.spg.stackelberg_sequence or handler.stackelberg_sequence
        never = self.config.never_learning(self.config.max_iterations)
        loss_module = Spg(
            self.agents,
            rl,
            self.config.spg,
            groups=learning_groups(sequence, self.agents, never),
            num_steps=self.environment.num_steps,
        )
        loss_module.make_value_estimator(ValueEstimators.GAE, gamma=rl.gamma, lmbda=rl.gae_lambda)
        return loss_module, loss_module.value_estimator
