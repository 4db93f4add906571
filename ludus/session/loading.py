"""Load what a run trained: `ludus.load`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, overload

from ludus.config.registry import load_plugin
from ludus.core.errors import LudusError, RunError, nearest
from ludus.session.rebuilt import RebuiltRun
from ludus.store.places import below, is_url, open_storage

T = TypeVar("T")


@overload
def load(
    run: str | Path,
    model: str | Path = ...,
    *,
    root: str | Path = ...,
    agent: str | None = ...,
    network: object = ...,
    script: str | Path | None = ...,
    plugin: str | Sequence[str] = ...,
    device: str | None = ...,
) -> Any: ...
@overload
def load(
    run: str | Path,
    model: str | Path = ...,
    *,
    expected: type[T],
    root: str | Path = ...,
    agent: str | None = ...,
    network: object = ...,
    script: str | Path | None = ...,
    plugin: str | Sequence[str] = ...,
    device: str | None = ...,
) -> T: ...
def load(
    run: str | Path,
    model: str | Path = "best",
    *,
    expected: type[Any] = object,
    root: str | Path = "runs",
    agent: str | None = None,
    network: object = None,
    script: str | Path | None = None,
    plugin: str | Sequence[str] = (),
    device: str | None = None,
) -> Any:
    """Return what a run trained, with kept weights and in eval mode.

    A torch network for supervised and active runs; for `ppo`, `dqn` and other agents a `ludus.Policy`, which
    acts and predicts; a player for a game of one network; for several roles or agents a mapping of players or
    networks by name, of which `agent` chooses one.

    `run` is a directory, a URL, or a name below `root`; `model` is best, last, best-<score>, the name of a
    kept model, or its directory. Where a script gave the network, `network` is a module like it, or a
    function that makes one; `script` is the script itself with its arguments, run up to its `fit`. `plugin`
    names modules or files to import first; those that the run was begun with are loaded by themselves.
    `device` replaces that of the run's settings. Raises RunError if what is found is not `expected`.
    """
    for one in [plugin] if isinstance(plugin, str) else plugin:
        load_plugin(one)
    place = place_of(run, root)
    with RebuiltRun.open(
        place,
        network=network,
        script=None if script is None else str(script),
        overrides=[] if device is None else [f"settings.device={device}"],
    ) as rebuilt:
        chosen = rebuilt.weights(str(model), is_last_best=False)
        found = rebuilt.use(chosen, rebuilt.kept.loaded)
    return _as_expected(_one_of(found, agent, place), expected, place)


def place_of(run: str | Path, root: str | Path) -> str:
    """Return the location of a run that is given by location, or by its name below the root."""
    is_there = is_url(str(run)) or open_storage(run).exists("run.json")
    named = below(root, str(run))
    is_name = not is_there and "/" not in str(run) and open_storage(named).exists("run.json")
    return named if is_name else str(run)


def _one_of(found: object, agent: str | None, place: str) -> object:
    """Return the one of this name from a mapping of networks or players; without a name, all."""
    if agent is None:
        return found
    if not isinstance(found, Mapping):
        raise LudusError(
            f"{place} trained one {type(found).__name__}, so there is no agent '{agent}' to choose; leave"
            " agent away"
        )
    if agent not in found:
        raise LudusError(f"{place} has no agent '{agent}'.{nearest(agent, found)}")
    chosen: object = found[agent]
    return chosen


def _as_expected(found: object, expected: type[Any], place: str) -> object:
    if not isinstance(found, expected):
        what = f"a {type(found).__name__}"
        if isinstance(found, Mapping):
            what = f"several networks or players ({', '.join(found)}; agent chooses one)"
        raise RunError(
            f"{place} is a run of another kind: it gives {what}, not a {expected.__name__}"
        )
    return found
