"""Any torch.optim.Optimizer in place of ludus's own: called eagerly, its state saved by parameter name."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ludus.config.registry import find
from ludus.core import states
from ludus.core.errors import ConfigError, LudusError
from ludus.nn.flat import FlatParameters, Vectors
from ludus.nn.optimizer import Optimizer
from ludus.nn.optimizers._rule import OptimizerConfig, Rule
from ludus.nn.torch_state import read_state, refuse_unsaved, try_state, write_state

TorchMade = torch.optim.Optimizer
Parameters = list[nn.Parameter] | list[dict[str, Any]]
"""The parameters to optimize; if there are groups, each with its own `lr`."""
Make = Callable[[Parameters], TorchMade]
"""Returns an optimizer of these parameters."""

_KEYS = ("num_steps", "state", "groups", "attributes")


def make_optimizer(
    config: OptimizerConfig,
    module: nn.Module,
    flat: FlatParameters,
    *,
    undecayed: Collection[str] = (),
    given: Make | None = None,
) -> Optimizer:
    """Return the optimizer of a config, or the one that a script gave."""
    kind = find("optimizer", config.kind)
    if given is None and issubclass(kind, Rule):
        return Optimizer(config, flat, undecayed=undecayed)
    return TorchOptimizer(config, module, flat, kind(config).make if given is None else given)


class TorchOptimizer(Optimizer):
    """Adapts an optimizer of torch to parameters that are views of the flat vectors.

    Before each step the lr of every param_group is set from the schedule. Whether to take the step is read in
    Python, so on CUDA every step synchronises with the device.
    """

    is_unbounded: ClassVar[bool] = True

    def __init__(
        self, config: OptimizerConfig, module: nn.Module, flat: FlatParameters, make: Make
    ) -> None:
        self.config, self._flat = config, flat
        self.parts, self.moments = [], []
        named = dict(module.named_parameters())
        self._named = {name: named[name] for name in flat.names}
        self._steps = torch.zeros((), device=flat.device)
        tried = try_state(lambda named: self._made(make, named), self._named)
        self._layout: dict[str, Any] = tried["state"]
        self._options = [[*group] for group in tried["groups"]]
        """The options that each group has after a step: some are set by the first one."""
        self.made = self._made(make, self._named)
        self._factors = [float(group["lr"]) / config.learning_rate for group in self._groups()]
        self._before: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        """The name of its class."""
        return type(self.made).__name__

    def _made(self, make: Make, named: Mapping[str, nn.Parameter]) -> TorchMade:
        rate, found = self.config.learning_rate, make(self._arranged(named))
        if not isinstance(found, TorchMade):
            raise ConfigError(
                f"the optimizer that was given is a {type(found).__name__}; give a class of"
                " torch.optim.Optimizer, or a function from parameters to one"
            )
        required = [
            one for one in inspect.signature(found.step).parameters.values()
            if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD
        ]  # fmt: skip
        if required:
            raise ConfigError(
                f"the optimizer {type(found).__name__} asks for a closure, which calls the network again;"
                " give one whose step() takes none"
            )
        held = [id(one) for group in found.param_groups for one in group["params"]]
        if sorted(held) != sorted(id(one) for one in named.values()):
            raise ConfigError(
                f"the optimizer {type(found).__name__} holds {len(held)} of the {len(named)} parameters; make"
                " it of all that it is given, and freeze with 'parameter_groups'"
            )
        rates = [float(group["lr"]) for group in found.param_groups if "lr" in group]
        if len(rates) < len(found.param_groups):
            raise ConfigError(
                f"a param_group of {type(found).__name__} has no 'lr', which the schedule sets; add one"
            )
        if not any(
            abs(one - rate * part.rate) <= 1e-9 * one for one in rates for part in self._flat.parts
        ):
            raise ConfigError(
                f"the lr of {type(found).__name__} is {rates[0]:g}, but the learning rate of the run is"
                f" {rate:g}, which schedules start from and which one param_group must have at least: set"
                f" 'optimizer.learning_rate' to {rates[0]:g} before set_optimizer, or take lr as an argument"
                f" and give set_optimizer lr={rates[0]:g}"
            )
        return found

    def _arranged(self, named: Mapping[str, nn.Parameter]) -> Parameters:
        """Return the parameters, by group if there are groups."""
        if not self._flat.frozen:
            return list(named.values())
        found: dict[str, dict[str, Any]] = {}
        for part in self._flat.parts:
            assert part.group is not None
            rate = self.config.learning_rate * part.rate
            group = found.setdefault(part.group.name, {"params": [], "lr": rate})
            group["params"] += [named[name] for name in part.names]
        return list(found.values())

    def _groups(self) -> list[dict[str, Any]]:
        return self.made.param_groups

    @property
    def evaluated(self) -> Vectors | None:
        """None: the weights of the network are evaluated."""
        return None

    def begin_mean(self) -> None:
        """Do nothing: there is no average."""

    def changed(self) -> list[Tensor]:
        """Return the step count; `keep_if` undoes the rest."""
        return [self._steps]

    @property
    def num_steps(self) -> Tensor:
        """The number of steps taken."""
        return self._steps

    @torch.no_grad()
    def step(
        self,
        learning_rate: float | Tensor,
        *,
        stays: Sequence[Tensor | None],
        grad_divisor: Tensor | None = None,
        released: Sequence[Sequence[Tensor]] | None = None,
    ) -> None:
        """Take one step along the gradients divided by grad_divisor; none where `stays` holds 1."""
        parts = zip(self._flat.parts, stays, strict=True)
        moving = {
            name for part, stay in parts if stay is None or not bool(stay) for name in part.names
        }
        self._before = None
        if not moving:
            return
        if grad_divisor is not None:
            for gradient in self._flat.gradients:
                gradient.div_(grad_divisor.to(gradient.device))
        rate = float(learning_rate)
        for group, factor in zip(self._groups(), self._factors, strict=True):
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate * factor)
            else:
                group["lr"] = rate * factor
        self._before = copy.deepcopy(self._state())
        gradients, weights = (
            self._flat.by_name(self._flat.gradients),
            self._flat.by_name(self._flat.vectors),
        )
        for name, one in self._named.items():
            one.grad = gradients[name] if name in moving else None
        try:
            self.made.step()
        finally:
            for name, one in self._named.items():
                one.grad = gradients[name]
                if one.data_ptr() != weights[name].data_ptr():
                    raise LudusError(
                        f"the optimizer {self.name} put another tensor in the place of the parameter"
                        f" '{name}'; let it change parameters in place"
                    )
        self._steps += 1

    def keep_if(self, is_finite: Tensor) -> None:
        """Restore the state before the last step if a weight is not finite after it."""
        if self._before is not None and not bool(is_finite):
            self._put(self._before)
        self._before = None

    def _state(self) -> dict[str, Any]:
        return {"num_steps": self._steps, **read_state(self.made, self._named)}

    def state_dict(self) -> dict[str, Any]:
        """Return its state of each parameter by name, the options of its groups, and its attributes."""
        state = self._state()
        refuse_unsaved(self.made, state, LudusError)
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a saved state."""
        self.check_state(state)
        self._put(copy.deepcopy(dict(state)))

    def _put(self, state: Mapping[str, Any]) -> None:
        self._steps.copy_(state["num_steps"])
        write_state(self.made, self._named, state, self._layout)

    def check_state(self, state: Mapping[str, Any]) -> None:
        """Raise StateError unless this is the state of such an optimizer."""
        states.check_keys(state, *_KEYS)
        states.between(
            "num_steps", states.like(state, "num_steps", self._steps, finite=True), low=0
        )
        states.rows(state, "groups", length=len(self._groups()))
        with states.within("groups"):
            for index, (own, saved) in enumerate(zip(self._groups(), state["groups"], strict=True)):
                with states.within(str(index)):
                    needed = (key for key in own if key != "params")
                    states.check_keys(saved, *needed, optional=self._options[index])
        with states.within("state"):
            saved_state = states.mapping(state, "state")
            states.check_keys(saved_state, optional=[*self._named])
            for name, kept in saved_state.items():
                with states.within(name):
                    for key, own in self._layout.get(name, {}).items():
                        if isinstance(own, Tensor) and key in kept:
                            states.like(kept, key, own)
        states.mapping(state, "attributes")
