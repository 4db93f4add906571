"""A trained policy as a small directory that NumPy alone can read and run: no torch, no gymnasium.

<policy>/   policy.json   weights.safetensors

Shapes: N observations, A outputs, K numbers of an action.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import CheckpointError, LudusError
from ludus.nn.export import numpy_net
from ludus.nn.export.files import read_policy, write_policy
from ludus.nn.export.numpy_net import Array, NumpyMlp, NumpyStep

Kind = Literal["greedy", "categorical", "squashed", "gaussian"]

_STEPS: dict[str, Any] = {
    cls.__name__: cls
    for cls in (
        *(numpy_net.Linear, numpy_net.Relu, numpy_net.Tanh),
        *(numpy_net.Gelu, numpy_net.Silu, numpy_net.LayerNorm, numpy_net.BatchNorm),
    )
}
_HEADS: dict[str, tuple[set[str], ...]] = {
    "greedy": ({"q"}, {"value", "advantage"}),
    "categorical": ({"logits"},),
    "squashed": ({"mean"},),
    "gaussian": ({"mean"},),
}


@dataclass(frozen=True)
class Normalisation:
    """The normalisation of observations in training: (obs - mean) * inv_std, clipped to +-clip."""

    mean: Array
    inv_std: Array
    clip: float


def save_policy(
    path: str | Path,
    *,
    kind: Kind,
    obs_shape: Sequence[int],
    action: object,
    body: Sequence[NumpyStep],
    heads: Mapping[str, Sequence[NumpyStep]],
    normalisation: Normalisation | None = None,
    has_masks: bool = False,
) -> None:
    """Write a policy to its own directory; only a policy that ludus wrote is ever replaced.

    `action` is the action space: `n` actions counted from `start`, choices of `nvec` counted from `starts`,
    or numbers from `low` to `high`. `heads` has one entry: `q` (greedy), `logits` (categorical) or `mean`
    (squashed, gaussian). A dueling network is greedy with two: `value` and `advantage`.
    """
    if set(heads) not in _HEADS[kind]:
        raise LudusError(f"a {kind} policy has the heads {_HEADS[kind]}, not {sorted(heads)}")
    arrays: dict[str, Array] = {}
    note: dict[str, Any] = {
        "kind": kind,
        "obs_shape": [int(length) for length in obs_shape],
        "action": _describe_action(action, arrays),
        "body": _describe(body, "body", arrays),
        "heads": {name: _describe(head, name, arrays) for name, head in sorted(heads.items())},
        "clip": None if normalisation is None else float(normalisation.clip),
        "has_masks": has_masks,
    }
    if normalisation is not None:
        arrays["obs.mean"], arrays["obs.inv_std"] = normalisation.mean, normalisation.inv_std
    write_policy(Path(path), note, arrays)


class NumpyPolicy:
    """The deterministic policy of a trained agent: a function from observation to action."""

    def __init__(
        self,
        *,
        kind: Kind,
        obs_shape: Sequence[int],
        action: Mapping[str, Any],
        body: Sequence[NumpyStep],
        heads: Mapping[str, Sequence[NumpyStep]],
        normalisation: Normalisation | None,
        has_masks: bool = False,
    ) -> None:
        self.kind = kind
        self.has_masks = has_masks
        """Whether it was trained with action masks; then it must be called with masks."""
        self.obs_shape = tuple(obs_shape)
        self.action = dict(action)
        self._normalisation = normalisation
        self._body = NumpyMlp(body)
        self._heads = {name: NumpyMlp(head) for name, head in heads.items()}

    def __repr__(self) -> str:
        return f"NumpyPolicy({self.kind}: observations of shape {self.obs_shape})"

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return the policy that `save_policy` wrote; raise CheckpointError if it has changed."""
        note, arrays = read_policy(Path(path))
        try:
            clip = note["clip"]
            normalisation = None
            if clip is not None:
                normalisation = Normalisation(
                    arrays["obs.mean"], arrays["obs.inv_std"], float(clip)
                )
            heads = {name: _steps(steps, name, arrays) for name, steps in note["heads"].items()}
            if note["kind"] not in get_args(Kind) or set(heads) not in _HEADS[note["kind"]]:
                raise ValueError(f"a {note['kind']} policy with the heads {sorted(heads)}")
            return cls(
                kind=note["kind"],
                obs_shape=note["obs_shape"],
                action=_read_action(note["action"], arrays),
                body=_steps(note["body"], "body", arrays),
                heads=heads,
                normalisation=normalisation,
                has_masks=bool(note["has_masks"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(f"{path} does not describe a policy: {error}") from None

    def __call__(self, obs: NDArray[Any], masks: NDArray[np.bool_] | None = None) -> Any:
        """Return the action for one observation, or one per row for a batch.

        Actions are in the env's units. With masks, of the outputs' shape, only actions that they allow are
        chosen; a policy that was trained with masks needs them.
        """
        if self.has_masks and masks is None:
            raise LudusError(
                "the policy was trained where some actions are forbidden; call policy(obs, masks), true"
                " for those allowed"
            )
        obs = np.asarray(obs)
        is_single = obs.shape == self.obs_shape
        if not is_single and obs.shape[1:] != self.obs_shape:
            raise LudusError(
                f"the policy takes observations of shape {list(self.obs_shape)}, or a batch of"
                f" them, but got {list(obs.shape)}"
            )
        outputs_NA = self.outputs(obs[None] if is_single else obs)
        if masks is not None:
            masks = np.asarray(masks, bool)
            outputs_NA = self._masked(outputs_NA, masks[None] if is_single else masks)
        actions = self._chosen(outputs_NA)
        return actions[0] if is_single else actions

    def outputs(self, obs: NDArray[Any]) -> Array:
        """Return the network's output for a batch: Q-values, logits or means, (N, A)."""
        normal = self._normalisation
        if normal is not None:
            obs = np.clip((obs - normal.mean) * normal.inv_std, -normal.clip, normal.clip)
        features = self._body(obs)
        found = {name: head(features) for name, head in self._heads.items()}
        if len(found) == 1:
            return next(iter(found.values())).copy()
        advantages_NA = found["advantage"]
        dueling: Array = found["value"] + advantages_NA - advantages_NA.mean(1, keepdims=True)
        return dueling

    def _masked(self, outputs_NA: Array, masks_NA: NDArray[np.bool_]) -> Array:
        if "low" in self.action:
            raise LudusError(f"a {self.kind} policy of numbers takes no masks; leave them out")
        if masks_NA.shape != outputs_NA.shape:
            raise LudusError(
                f"the masks have the shape {list(masks_NA.shape)}, the policy's outputs"
                f" {list(outputs_NA.shape)}; give one entry an action"
            )
        for block in self._blocks(masks_NA):
            if not block.any(1).all():
                raise LudusError("the masks allow no action at all; allow one or more")
        return np.where(masks_NA, outputs_NA, np.float32(-np.inf))

    def _blocks(self, table: NDArray[Any]) -> list[NDArray[Any]]:
        """Return the columns of each choice; a Discrete action has a single block."""
        nvec = self.action.get("nvec", [table.shape[1]])
        return np.split(table, np.cumsum(nvec)[:-1], axis=1)

    def _chosen(self, outputs_NA: Array) -> NDArray[Any]:
        action = self.action
        if "n" in action:
            chosen: NDArray[Any] = outputs_NA.argmax(1) + action["start"]
        elif "nvec" in action:
            best = [block.argmax(1) for block in self._blocks(outputs_NA)]
            chosen = np.stack(best, 1) + np.array(action["starts"], np.int64)
        else:
            low, high = action["low"], action["high"]
            if self.kind == "squashed":
                outputs_NA = low + (np.tanh(outputs_NA) + np.float32(1)) * np.float32(0.5) * (
                    high - low
                )
            # Rounding may exceed the bound slightly, which an env need not accept.
            chosen = np.clip(outputs_NA, low, high)
        return chosen


def _describe(
    steps: Sequence[NumpyStep], place: str, arrays: dict[str, Array]
) -> list[dict[str, Any]]:
    """Return the steps as JSON and add their arrays, by name, to the others."""
    described = []
    for index, step in enumerate(steps):
        options: dict[str, Any] = {"step": type(step).__name__}
        assert options["step"] in _STEPS, f"{options['step']} cannot be saved"
        for field in dataclasses.fields(step):  # type: ignore[arg-type]
            value = getattr(step, field.name)
            if isinstance(value, np.ndarray):
                arrays[f"{place}.{index}.{field.name}"] = value
                value = "array"
            options[field.name] = value
        described.append(options)
    return described


def _steps(
    described: Sequence[Mapping[str, Any]], place: str, arrays: Mapping[str, Any]
) -> list[Any]:
    """Return the steps that `_describe` described."""
    steps = []
    for index, options in enumerate(described):
        values = {name: value for name, value in options.items() if name != "step"}
        for name, value in values.items():
            if value == "array":
                values[name] = arrays[f"{place}.{index}.{name}"]
        steps.append(_STEPS[options["step"]](**values))
    return steps


def _describe_action(action: Any, arrays: dict[str, Array]) -> dict[str, Any]:
    # Distinguished by their attributes, so that this file need not import gymnasium.
    if hasattr(action, "n"):
        return {"n": int(action.n), "start": int(action.start)}
    if hasattr(action, "nvec"):
        nvec, starts = map(int, action.nvec), map(int, action.starts)
        return {"nvec": list(nvec), "starts": list(starts)}
    # Bounds may be infinite, which JSON cannot represent.
    arrays["action.low"], arrays["action.high"] = action.low, action.high
    return {"low": "array", "high": "array"}


def _read_action(described: Mapping[str, Any], arrays: Mapping[str, Array]) -> dict[str, Any]:
    if "low" in described:
        return {"low": arrays["action.low"], "high": arrays["action.high"]}
    keys = ("n", "start") if "n" in described else ("nvec", "starts")
    return {key: described[key] for key in keys}
