"""Other data than those of a run, for its kept models: the run's section `data` with some keys changed.

What the run measured on its training examples (means, classes, categories) is applied to the others, since
its network expects them so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.utils.data import Dataset

from ludus.config.base import StrictConfig, validate
from ludus.config.overrides import apply_overrides
from ludus.config.registry import find
from ludus.config.sections import kind_of
from ludus.core.errors import ConfigError
from ludus.data.batches.splits import EncodesOthers
from ludus.fit.preflight import check_model
from ludus.nn.model import Model
from ludus.nn.precision import autocast_in
from ludus.seeds import forked, generator
from ludus.session.device import resolve_device
from ludus.supervised.config import SupervisedConfig
from ludus.supervised.datasets import make_evaluators
from ludus.supervised.evaluator import SupervisedEvaluator


def evaluator(
    config: SupervisedConfig, model: Model, changes: Sequence[str]
) -> SupervisedEvaluator:
    """Return an evaluator on the data of the config with `key=value` changed; its metrics are test/..."""
    section = _changed(config.data, changes)
    device = resolve_device(config.settings.device)
    found = make_evaluators(config, {"test": _examples(config, section)}, device)["test"]
    with forked(0), autocast_in(config.precision, device):
        check_model(model, found.data, what="be measured on these data")
    return found


def _changed(own: StrictConfig | None, changes: Sequence[str]) -> StrictConfig:
    """Return the section with these changes; of another kind it takes the keys that both kinds have."""
    data: dict[str, Any] = {} if own is None else own.model_dump()
    words = dict(change.partition("=")[::2] for change in changes)
    kind = words.get("kind", data.get("kind"))
    if kind is None:
        raise ConfigError(
            "the data of this run came from its script, so --data has no section to change; give a whole one:"
            " --data kind=csv --data path=... (trainer.evaluate(loader, model=...) takes any loader)"
        )
    known = find("dataset", kind).Config.model_fields
    data = {key: value for key, value in data.items() if key in known} | {"kind": kind}
    # A new kind has keys that the old section lacks; those that are not given are reported by name.
    lacking = {key: None for key in words if key in known and key not in data}
    given = {**data, **lacking}
    _, wrong = apply_overrides(given, [change for change in changes if change != f"kind={kind}"])
    if wrong:
        raise ConfigError(f"--data: {'; '.join(wrong)}")
    section: StrictConfig = validate(find("dataset", kind).Config, given, source="--data")
    return section


def _examples(config: SupervisedConfig, section: StrictConfig) -> Dataset[Any]:
    """Return all examples of the section, or, where its kind cannot, its test or validation examples."""
    own, split = config.data, generator(config.seed, "split")
    if own is not None:
        dataset = find("dataset", kind_of(own))(own)
        if isinstance(dataset, EncodesOthers):
            found = dataset.others(section, split)
            if found is not None:
                return found
    if getattr(section, "standardise", False):
        raise ConfigError(
            "'data.standardise' would scale these data by their own mean and deviation, and not as those that"
            " the network was trained on; scale them in the file, and give --data standardise=false"
        )
    splits = find("dataset", kind_of(section))(section).load(split)
    parts = (splits.test, splits.validation, splits.train)
    return next(part for part in parts if part is not None)
