"""Change keys of nested data by their paths, as `optimizer.learning_rate=0.1` on the command line does."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from ludus import strict_yaml
from ludus.core.errors import ConfigError, nearest

# What people know these keys as from elsewhere, and what they may be here.
_ELSEWHERE = {
    # The keys of the schedule that a file does not follow, and those of the one it does.
    "max_env_steps": ("steps.max_opts",),
    "max_opts": ("epochs.max_env_steps",),
    "record_freq": ("steps.record_interval",),
    "eval_freq": ("steps.eval_interval",),
    "save_freq": ("steps.save_interval",),
    "updates_per_env_step": ("steps.opt_interval",),
    "steps_per_epoch": ("steps.opt_interval",),
    "record_interval": ("epochs.record_freq",),
    "eval_interval": ("epochs.eval_freq",),
    "save_interval": ("epochs.save_freq",),
    "opt_interval": ("epochs.updates_per_env_step",),
    "max_steps": ("steps.max_opts", "epochs.max_opts"),
    "num_train_steps": ("max_steps", "steps.max_opts", "epochs.max_opts"),
    "total_timesteps": ("max_env_steps", "max_opts"),
    "num_timesteps": ("max_env_steps", "max_opts"),
    "timesteps": ("max_env_steps", "max_opts"),
    "n_envs": ("num_envs",),
    "n_steps": ("rollout_steps", "n_step"),
    "n_epochs": ("passes", "max_epochs"),
    "epochs": ("max_epochs",),
    "batch_size": ("minibatches",),
    "num_minibatches": ("minibatches",),
    "lr": ("optimizer.learning_rate",),
    "clip_range": ("clip.initial",),
    "clip_coef": ("clip.initial",),
    "clip_range_vf": ("value_clip",),
    "ent_coef": ("entropy_coef", "temperature.initial"),
    "vf_coef": ("value_coef",),
    "buffer_size": ("replay.capacity",),
    "tau": ("target.share",),
    "target_update_interval": ("target.every_opt_steps",),
    "train_freq": ("opt_interval",),
    "net_arch": ("network.widths",),
    "hidden_sizes": ("network.widths",),
}


def apply_overrides(data: dict[str, Any], overrides: Sequence[str]) -> list[str]:
    """Apply `key.path=value` texts in place, and return the paths of the keys they changed."""
    changed = []
    for text in overrides:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"'{text}' is not an override; write key.path=value")
        parsed = strict_yaml.parse(value, source=f"override {key}")
        changed.append(override(data, key.strip(), parsed))
    return changed


def override(data: dict[str, Any], key: str, value: Any) -> str:
    """Set one key of a nested mapping in place and return its path.

    The key is a dotted path, or a bare name that stands in just one section. A number for the
    section `learning_rate`, which says how the rate changes, is the rate that it starts from.
    """
    path = key.replace("__", ".").split(".")
    if len(path) == 1 and key not in data:
        places = [place for place in key_paths(data) if place.split(".")[-1] == key]
        if len(places) > 1:
            raise ConfigError(f"'{key}' stands in several sections; say which: {', '.join(places)}")
        path = places[0].split(".") if places else path
    section: Any = data
    for depth, part in enumerate(path):
        above = ".".join(path[:depth])
        if not isinstance(section, dict):
            what = "null" if section is None else "not a section"
            hint = _known_elsewhere(key, data)
            raise ConfigError(
                f"'{above}' is {what}, so '{key}' cannot be set; set all of '{above}'.{hint}"
            )
        # What an env takes is its own affair: the names under kwargs are free.
        if part not in section and path[depth - 1 : depth] != ["kwargs"]:
            hint = _known_elsewhere(key, data) or nearest(part, map(str, section))
            if not above and "Did you mean" not in hint:
                # A bare name may be meant for a key of some section.
                close = nearest(key, key_paths(data))
                hint = close if "Did you mean" in close else hint
            raise ConfigError(f"'{key}' is not a key of {above or 'this config'}.{hint}")
        if depth < len(path) - 1:
            section = section[part]
    place, present = ".".join(path), section.get(path[-1])
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(present, dict) and is_number:
        if place == "learning_rate" and isinstance(data.get("optimizer"), dict):
            return override(data, "optimizer.learning_rate", value)
        others = [p for p in key_paths(data) if p.split(".")[-1] == path[-1] and p != place]
        meant = [f"{place}.initial"] if "initial" in present else others
        if meant:
            raise ConfigError(f"'{key}' is a section, not a number; the number is '{meant[0]}'")
    # A later override may reach into the value, which is the caller's.
    section[path[-1]] = copy.deepcopy(value)
    return place


def _known_elsewhere(key: str, data: Mapping[str, Any]) -> str:
    """Return the key that is meant by a name of another library or schedule; nothing if there is none."""
    paths = key_paths(data)
    for name in _ELSEWHERE.get(key.split(".")[-1], ()):
        for path in paths:
            if path == name or path.endswith(f".{name}"):
                return f" Did you mean '{path}'?"
    return ""


def key_paths(data: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Return the dotted path of every key."""
    paths = []
    for key, value in data.items():
        paths.append(f"{prefix}{key}")
        if isinstance(value, Mapping):
            paths += key_paths(value, f"{prefix}{key}.")
    return paths
