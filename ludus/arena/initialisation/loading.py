"""Load initial weights of agents from an earlier run.

They are read once, in the first stage of the plan, and a copy is kept in the run's own directory: neither a
resume nor an evaluation needs the earlier run any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from ludus.arena.agents.agent import Agent, LoadParameters
from ludus.arena.agents.combined import CombinedAgents
from ludus.arena.config import ExperimentParameters
from ludus.config import strict_yaml
from ludus.config.start import StartConfig
from ludus.core import Run, Stage
from ludus.core.errors import CheckpointError, ConfigError, LudusError
from ludus.nn.module_state import ModuleState
from ludus.session.begun import has_begun
from ludus.session.start import read_source
from ludus.store.places import open_storage
from ludus.store.storage import Storage

# The trainer decides which of these an agent has, so a missing one is not an error.
CHOSEN = ("value_body", "policy_head", "value_head", "solo_head")
_MAX_BYTES = 1 << 34


class Loading:
    """Reads the weights named by the config's `agents.X.load`, and loads them into the agents."""

    def __init__(self, config: ExperimentParameters, agents: CombinedAgents) -> None:
        sections = config.agents.items()
        self._named = {name: one.load for name, one in sections if one.load is not None}
        self._lenders = {name: getattr(one, "shares_body_of", None) for name, one in sections}
        self._agents = agents

    def stages(self) -> tuple[Stage, ...]:
        """Return the loading stage; none where nothing is to be loaded."""
        if not self._named:
            return ()
        names = ", ".join(self._named)
        return (Stage(name="load_agents", work=self._load, note=f"earlier weights of {names}"),)

    def check(self, run: Run) -> None:
        """Raise ConfigError, before a run begins, unless everything named exists and fits."""
        if run.files is not None and not has_begun(run.files):
            for name, section in self._named.items():
                self._fitted(name, _read(name, section))

    def _fitted(
        self, name: str, given: Mapping[str, Tensor]
    ) -> tuple[dict[str, Tensor], list[str]]:
        return fitted(self._agents.member(name), given, name, lender=self._lenders[name])

    def _load(self, run: Run) -> None:
        found: dict[str, dict[str, Tensor]] = {}
        for name, section in self._named.items():
            weights = _kept(run, name)
            if weights is None:
                weights = _read(name, section)
                if run.files is not None:
                    run.files.write(_copy(name), save(weights))
            found[name] = weights
        for name, given in found.items():
            # Fitted here, when the owner of a shared body may have loaded it: weights that are not given
            # stay current.
            weights, fresh = self._fitted(name, given)
            ModuleState(self._agents.member(name), without=()).load(weights)
            section, lender = self._named[name], self._lenders[name]
            besides = "" if lender is None else f"; its body is that of '{lender}'"
            besides += f"; fresh: {', '.join(fresh)}" if fresh else ""
            run.tell(
                f"agent '{name}' begins with '{section.agent}' of {section.run}, model {section.model}"
                f"{besides}",
                event="loaded",
            )


def fitted(
    agent: Agent, given: Mapping[str, Tensor], name: str, *, lender: str | None
) -> tuple[dict[str, Tensor], list[str]]:
    """Return all weights of an agent, with those given in their places, and the parts that stay new.

    Parts that this trainer does not use are left out, and so is a shared body that another agent owns.
    Raises ConfigError for any other mismatch.
    """
    own = ModuleState(agent, without=()).tensors()
    here = {_part(one) for one in own}
    if "value_body" in here and "value_body" not in {_part(one) for one in given}:
        inside = {one: tensor for one, tensor in given.items() if _part(one) == "body"}
        given = {**given, **{f"value_{one}": tensor for one, tensor in inside.items()}}
    optional = CHOSEN if lender is None else (*CHOSEN, "body")
    if lender is not None:
        given = {one: tensor for one, tensor in given.items() if _part(one) != "body"}
    there = {_part(one) for one in given}
    wanted = {one for one in own if _part(one) in there or _part(one) not in optional}
    taken = {
        one: tensor
        for one, tensor in given.items()
        if _part(one) in here or _part(one) not in CHOSEN
    }
    path = f"'agents.{name}.load'"
    if not taken:
        whose = "" if lender is None else f", whose body is that of '{lender}'"
        raise ConfigError(
            f"{path}: there are no weights to load into this agent{whose}; set it to null"
        )
    for one in sorted({*wanted, *taken}):
        if _kind(taken.get(one)) != _kind(own.get(one)) and not one.endswith("_extra_state"):
            raise ConfigError(
                f"{path}: '{one}' is {_kind(taken.get(one))} there and {_kind(own.get(one))} here;"
                " describe the agent as it was in that run, for as many rounds and channels"
            )
    fresh = sorted(part for part in here if part in CHOSEN and part not in there)
    try:
        ModuleState(agent, without=()).check({**own, **taken})
    except LudusError as error:
        raise ConfigError(f"{path}: {error}") from None
    return {**own, **taken}, fresh


def _part(name: str) -> str:
    return name.partition(".")[0]


def _kind(tensor: Tensor | None) -> str:
    if tensor is None:
        return "missing"
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"


def _copy(name: str) -> str:
    return f"loaded/{name}.safetensors"


def _kept(run: Run, name: str) -> dict[str, Tensor] | None:
    """Return the copy of loaded weights that this run kept, if any."""
    if run.files is None or not run.files.exists(_copy(name)):
        return None
    try:
        return dict(load(run.files.read(_copy(name), limit=_MAX_BYTES)))
    except SafetensorError:
        raise CheckpointError(
            f"{run.files.place}/{_copy(name)} is damaged; delete it, and the earlier run is read again"
        ) from None


def _read(name: str, section: LoadParameters) -> dict[str, Tensor]:
    """Return the weights of an agent of an earlier run, by their names in the agent."""
    path = f"'agents.{name}.load"
    start = StartConfig(
        run=section.run, model=section.model, optimizer=False, frozen=[], learning_rates=[]
    )
    try:
        source = read_source(start, "runs")
        config = _config(open_storage(source.place))
    except LudusError as error:
        raise ConfigError(f"{path}': {error}") from None
    # Those of a checkpoint are of the network that holds the agents.
    weights = {one.removeprefix("agents."): tensor for one, tensor in source.weights.items()}
    return _of_agent(weights, config, section, path)


def _config(storage: Storage) -> Mapping[str, Any]:
    text = storage.read("config.yaml", limit=strict_yaml.MAX_BYTES)
    data = strict_yaml.parse(text, source=f"{storage.place}/config.yaml")
    if not isinstance(data, Mapping):
        raise CheckpointError(
            f"{storage.place}/config.yaml is no mapping of keys; restore it as the run wrote it"
        )
    return data


def _of_agent(
    weights: Mapping[str, Tensor], config: Mapping[str, Any], section: LoadParameters, path: str
) -> dict[str, Tensor]:
    agents = config.get("agents")
    if not isinstance(agents, dict) or not isinstance(agents.get(section.agent), dict):
        known = agents if isinstance(agents, dict) else {}
        there = ", ".join(str(one) for one in known if isinstance(known[one], dict)) or "none"
        raise ConfigError(
            f"{path}.agent' is {section.agent}, which is no agent of {section.run}; it has {there}"
        )
    found = _inside(weights, f"members.{section.agent}.")
    lender = agents[section.agent].get("shares_body_of")
    if lender is not None:
        # A shared body is kept once, with the agent that owns it.
        body = _inside(weights, f"members.{lender}.body.")
        found |= {f"body.{name}": tensor for name, tensor in body.items()}
    return found


def _inside(weights: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    named = weights.items()
    return {name.removeprefix(prefix): one for name, one in named if name.startswith(prefix)}
