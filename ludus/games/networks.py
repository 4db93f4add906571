"""Networks of players, written as a short list: the net_arch language.

    128                          a linear layer of this width and a ReLU
    b                            batch norm, before the last ReLU
    r64                          a residual block to this width (Linear, batch norm, ReLU, Linear, batch
                                 norm, plus the input, projected where the widths differ) and a ReLU
    {repeat: 3, net_arch: [..]}  a list so many times

The output layer follows the last ReLU. Nothing is done to the input: padding of -1 must not look like 0.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ludus.config.base import Positive, StrictConfig, validate
from ludus.core.errors import ConfigError
from ludus.games.game import FusedGame, Moves
from ludus.nn.model import without_model
from ludus.seeds import forked

# A net_arch of more layers than this is a mistake, such as a repeat inside a repeat.
_MOST_LAYERS = 1000
_WIDEST = 2**20
_RESIDUAL = re.compile(r"r([1-9][0-9]*)")


class RepeatedLayer(StrictConfig):
    """A part of a net_arch, repeated."""

    repeat: Positive
    """The number of repetitions."""
    net_arch: Annotated[NetArch, Field(min_length=1)]
    """The layers that are repeated."""


Layer = Positive | Annotated[str, Field(min_length=1)] | RepeatedLayer
NetArch = list[Layer]
RepeatedLayer.model_rebuild()


class _Read(StrictConfig):
    """A net_arch alone, so that its mistakes are reported like those of a config file."""

    net_arch: NetArch
    """The layers."""

    def problems(self) -> Iterator[str]:
        """Yield a sentence for each invalid element."""
        yield from arch_problems(self.net_arch)


class ResidualBlock(nn.Module):
    """Linear, batch norm, ReLU, Linear, batch norm, plus the input, projected where the widths differ."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(inputs, outputs),
            nn.BatchNorm1d(outputs),
            nn.ReLU(),
            nn.Linear(outputs, outputs),
            nn.BatchNorm1d(outputs),
        )
        self.skip = nn.Identity() if inputs == outputs else nn.Linear(inputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, outputs)."""
        added: Tensor = self.layers(x) + self.skip(x)
        return added


def make_net(
    net_arch: Sequence[Layer | Mapping[str, object]], inputs: int, outputs: int
) -> nn.Sequential:
    """Return the network of a net_arch; raise ConfigError that names the invalid element."""
    arch = validate(_Read, {"net_arch": list(net_arch)}, source="make_net").net_arch
    layers: list[nn.Module] = []
    width = inputs
    for _, element in _flat(arch, "net_arch"):
        if element == "b":
            layers.insert(len(layers) - 1, nn.BatchNorm1d(width))
            continue
        if isinstance(element, int):
            layers += [nn.Linear(width, element), nn.ReLU()]
            width = element
        else:
            block = int(element[1:])
            layers += [ResidualBlock(width, block), nn.ReLU()]
            width = block
    return nn.Sequential(*layers, nn.Linear(width, outputs))


def arch_problems(net_arch: Sequence[Layer]) -> Iterator[str]:
    """Yield a sentence for each invalid element of a net_arch, with its position."""
    is_first, seen = True, set[str]()
    for number, (place, element) in enumerate(_flat(net_arch, "net_arch")):
        if number >= _MOST_LAYERS:
            yield f"'net_arch' has more than {_MOST_LAYERS} layers; repeat fewer times"
            return
        if place in seen:
            continue
        seen.add(place)
        is_residual = isinstance(element, str) and _RESIDUAL.fullmatch(element) is not None
        if isinstance(element, str) and element != "b" and not is_residual:
            yield (
                f"'{place}' is {element!r}; an element is a width such as 128, b for batch norm, r64 for a"
                " residual block, or a section with repeat and net_arch"
            )
        elif element == "b" and is_first:
            yield f"'{place}' is b, batch norm of the layer before it, but there is none; put a width first"
        elif element != "b":
            width = element if isinstance(element, int) else int(element[1:])
            if width > _WIDEST:
                yield f"'{place}' is {element}; the widest layer has {_WIDEST}"
        is_first = is_first and element == "b"


def _flat(net_arch: Sequence[Layer], place: str) -> Iterator[tuple[str, int | str]]:
    """Yield every element in order, with its position; repeated elements are yielded once per repetition."""
    for index, element in enumerate(net_arch):
        here = f"{place}.{index}"
        if isinstance(element, RepeatedLayer):
            for _ in range(element.repeat):
                yield from _flat(element.net_arch, f"{here}.net_arch")
        else:
            yield here, element


def check_net(
    net: object, *, role: str, inputs: int, outputs: int, learns: bool = False
) -> nn.Module:
    """Return a script's own network; raise ConfigError unless it returns a value for each action.

    If it `learns`, its values must require a gradient.
    """
    if not isinstance(net, nn.Module):
        raise ConfigError(
            f"{role}_net is a {type(net).__name__}; give a torch.nn.Module, or a player with act(obs,"
            " legal, generator)"
        )
    name = f"{role}_net, a {type(net).__name__},"
    shape = _shape_of(_tried(net, inputs=inputs, name=name, learns=learns))
    if shape != (2, outputs):
        raise ConfigError(
            f"{name} gives {shape} for 2 observations; the {role} has {outputs} actions, so it must give"
            f" (2, {outputs})"
        )
    return net


def check_network(network: object, game: FusedGame) -> nn.Module:
    """Return the network of a script; raise ConfigError unless its outputs suit PPO.

    For observations (B, O) it returns three things: logits or means (B, A), values (B,), and the log
    standard deviations (A,) for continuous actions, else None.
    """
    network = without_model(network)
    if not isinstance(network, nn.Module):
        raise ConfigError(f"{type(network).__name__} is no torch.nn.Module; derive it from that")
    role, name = game.roles[0], type(network).__name__
    actions = game.actions(role)
    num_outputs = actions.count if isinstance(actions, Moves) else len(actions.low)
    last = "None" if isinstance(actions, Moves) else f"log_std ({num_outputs},)"
    form = f"(outputs (B, {num_outputs}), values (B,), {last})"
    size = game.observation_size(role)
    found = _tried(network, inputs=size, name=f"the network {name}", learns=True)
    wanted: tuple[Any, ...] = (
        (2, num_outputs), (2,), None if isinstance(actions, Moves) else (num_outputs,)
    )  # fmt: skip
    shapes = tuple(map(_shape_of, found)) if isinstance(found, tuple) else _shape_of(found)
    if shapes != wanted:
        raise ConfigError(
            f"the network {name} returns {shapes} for 2 observations, not {wanted}; for"
            f" {type(game).__name__} it returns {form}"
        )
    return network


def _tried(net: nn.Module, *, inputs: int, name: str, learns: bool = False) -> object:
    """Return the output of a copy of a script's network, in eval mode, for two rows of zeros on its own
    device.

    Raises ConfigError, with the network's own error, where it cannot take them; and where it writes into
    them, returns no floats, or `learns` and returns values without a gradient.
    """
    tensors = [*net.parameters(), *net.buffers()]
    if any(is_lazy(tensor) for tensor in tensors):
        raise ConfigError(
            f"{name} has layers without a size yet; call it once with observations of shape (1, {inputs})"
            " before you give it"
        )
    device = tensors[0].device if tensors else torch.device("cpu")
    copied, zeros = _copied(net, inputs, name), torch.zeros(2, inputs, device=device)
    with torch.no_grad():
        said = _said(copied.eval(), zeros, name)
    if learns:
        with torch.enable_grad():
            learned = _said(copied.train(), zeros, name)
        if not any(one.requires_grad for one in _tensors_of(learned)):
            raise ConfigError(
                f"{name} cannot learn: no gradient comes back from what it gives; it needs a parameter that"
                " requires a gradient, and must not detach what it gives"
            )
    return said


def _copied(net: nn.Module, inputs: int, name: str) -> nn.Module:
    try:
        return copy.deepcopy(net)
    except Exception as error:
        raise _cannot_take(error, inputs, name) from error


def _said(net: nn.Module, zeros: Tensor, name: str) -> object:
    """Return the output of a network; raise ConfigError if it fails or writes into its input."""
    before = zeros._version
    try:
        with forked(0):
            said: object = net(zeros)
    except Exception as error:
        raise _cannot_take(error, zeros.shape[1], name) from error
    if zeros._version != before or bool(zeros.any()):
        raise ConfigError(
            f"{name} writes into the observations it is given, which are a part of the game; let its first"
            " layer work out of place (no inplace=True, x * 2 rather than x.mul_(2)), or begin with x.clone()"
        )
    for one in _tensors_of(said):
        if not one.is_floating_point():
            raise ConfigError(f"{name} gives numbers of type {one.dtype}; give floats")
    return said


def _cannot_take(error: Exception, inputs: int, name: str) -> ConfigError:
    text = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return ConfigError(
        f"{name} cannot take observations of shape (B, {inputs}): {type(error).__name__}: {text}"
    )


def _tensors_of(said: object) -> list[Tensor]:
    return [one for one in (said if isinstance(said, tuple) else [said]) if isinstance(one, Tensor)]


def check_apart(nets: Mapping[str, nn.Module]) -> None:
    """Raise ConfigError where the networks of two roles share a parameter that requires a gradient."""
    owners: dict[int, str] = {}
    for role, net in nets.items():
        # A lazy layer is refused where the network is tried.
        sized = [p for p in net.parameters() if not is_lazy(p)]
        places = {p.data_ptr() for p in sized if p.requires_grad and p.numel()}
        for place in places & owners.keys():
            raise ConfigError(
                f"{owners[place]}_net and {role}_net share parameters, and each role learns by itself; give"
                " each a network of its own, such as copy.deepcopy(net)"
            )
        owners |= dict.fromkeys(places, role)


def _shape_of(out: object) -> Any:
    """Return the shape of a tensor, None for None, and the class name of anything else."""
    if out is None:
        return None
    return tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
