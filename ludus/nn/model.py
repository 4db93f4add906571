"""Model: a light wrapper around a torch network, with one way to train, evaluate, save and load it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Self

from torch import Tensor, nn
from torch.nn import functional

from ludus.config.base import StrictConfig, validate
from ludus.config.registry import find, kinds
from ludus.config.sections import kind_of
from ludus.core import states
from ludus.core.errors import ConfigError, LudusError
from ludus.nn.base_weights import base_names, base_state, further_names, without_base
from ludus.nn.calling import Signature, correct_in, loss_in, outputs_in, split_batch, unwrapped
from ludus.nn.module_state import extra_modules, extra_to_tensor, tensor_to_extra
from ludus.nn.swapped_weights import restored
from ludus.store.local import LocalStorage
from ludus.store.models import read_model, write_model
from ludus.store.places import open_storage, parted

Inputs = Tensor | Mapping[str, Tensor]
"""The input of a network: a tensor, or several by name."""
Loss = Literal["cross_entropy", "mse", "l1", "smooth_l1", "binary_cross_entropy", "from_model"]
CLASS_LOSSES: tuple[Loss, ...] = ("cross_entropy", "binary_cross_entropy")
"""The losses of classifiers, which have an accuracy."""
FROM_MODEL: Loss = "from_model"
"""The loss of a model that computes it itself, as transformers models do."""
_BY_ELEMENT: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mse": functional.mse_loss,
    "l1": functional.l1_loss,
    "smooth_l1": functional.smooth_l1_loss,
    "binary_cross_entropy": functional.binary_cross_entropy_with_logits,
}


class Model:
    """A network and its loss.

    Override `training_step` and `evaluation_step` to compute them differently.
    """

    is_loaded = False
    """Whether its weights were loaded by `load_model`, so that it was trained before."""

    def __init__(
        self, config: StrictConfig | nn.Module | Mapping[str, Any], *, loss: Loss | None = None
    ) -> None:
        self.config: StrictConfig | None = None
        if isinstance(config, nn.Module):
            self.module = config
            self.architecture = type(config).__name__.lower()
        else:
            self.config = _section(config)
            self.architecture = kind_of(self.config)
            self.module = find("model", self.architecture)(self.config)
        self._signature = Signature(self.module)
        self.loss: Loss | None = loss
        """The loss it is trained with; None takes the one in the trainer's config."""

    @property
    def model(self) -> nn.Module:
        """The network itself."""
        return self.module

    def __call__(self, x: Inputs) -> Tensor:
        """Return the network's output; of a structured output, its `logits`."""
        out: Tensor = unwrapped(self._call_by_signature().call(x))
        return out

    def training_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:
        """Return the mean `loss` of a batch and, for classifiers, the number of `correct` examples.

        A batch is inputs and targets, or a dict whose tensors are passed to the network by keyword.
        """
        assert self.loss is not None, "a trainer gives its model a loss"
        if self.loss == FROM_MODEL:
            said = self._call_by_signature().call_whole(batch)
            found = {"loss": loss_in(said)}
            correct = correct_in(said, batch)
            return found if correct is None else {**found, "correct": correct}
        inputs, targets = split_batch(batch)
        outputs = outputs_in(self._call_by_signature().call(inputs))
        result = {"loss": compute_loss(self.loss, outputs, targets)}
        if self.loss in CLASS_LOSSES:
            result["correct"] = count_correct(self.loss, outputs.detach(), targets)
        return result

    def _call_by_signature(self) -> Signature:
        if self._signature.module is not self.module:
            self._signature = Signature(self.module)
        return self._signature

    def evaluation_step(self, batch: object, batch_idx: int) -> dict[str, Tensor]:
        """Return the same for a batch of evaluation data."""
        return self.training_step(batch, batch_idx)

    def train(self, mode: bool = True) -> Self:
        self.module.train(mode)
        return self

    def eval(self) -> Self:
        return self.train(False)

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        """Switch to eval mode for the block; after it, each layer is back in its previous mode.

        Buffers that change even in eval mode are restored, so that an evaluation does not affect training.
        """
        with restored(self.module, what=("buffers", "modes")):
            self.eval()
            yield

    def zero_grad(self) -> None:
        self.module.zero_grad(set_to_none=False)

    def state_dict(self) -> dict[str, Tensor]:
        """Return parameters, all buffers and extra state by name; extra state is encoded as bytes.

        A tied parameter is included once, by its first name. A network with an adapter leaves out the frozen
        weights, which belong to its base, and includes a digest of them.
        """
        unsaved = {*further_names(self.module), *base_names(self.module)}
        whole = self.module.state_dict()
        state = {name: tensor for name, tensor in whole.items() if name not in unsaved}
        for name, part in extra_modules(self.module).items():
            state[name] = extra_to_tensor(part.get_extra_state())
        for name, buffer in self.module.named_buffers():
            # Non-persistent buffers are saved too: they may change in training.
            state.setdefault(name, buffer.detach())
        return state | base_state(self.module)

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Copy saved parameters and buffers in; every name must match."""
        state = without_base(self.module, state)
        self._check_fits(state)
        weights = self.module.state_dict()
        # A tied weight of an adapter's base is among the names of the base.
        saved: dict[str, Any] = {name: weights[name] for name in base_names(self.module)} | state
        for name, first in further_names(self.module).items():
            saved.setdefault(name, saved.get(first))
        known = self.module.state_dict()
        fleeting = {n: b for n, b in self.module.named_buffers() if n not in known and n in saved}
        found = {name: saved.pop(name) for name in fleeting}
        for name in extra_modules(self.module):
            if isinstance(saved.get(name), Tensor):
                saved[name] = tensor_to_extra(saved[name])
        try:
            self.module.load_state_dict(saved, strict=True)
        except RuntimeError as error:
            problem = " ".join(str(error).split())
            raise LudusError(f"the saved weights do not fit this model: {problem}") from None
        for name, buffer in fleeting.items():
            buffer.copy_(found[name])

    def _check_fits(self, state: Mapping[str, Any]) -> None:
        """Raise StateError, before anything has changed, unless names, shapes and dtypes match."""
        known, extra = self.module.state_dict(), extra_modules(self.module)
        own = {**known, **dict(self.module.named_buffers())}
        unsaved = {*further_names(self.module), *base_names(self.module)}
        trained = {name for name, _ in self.module.named_parameters()}
        try:
            # Older versions did not save non-persistent buffers.
            states.check_keys(state, *(n for n in known if n not in unsaved), optional=list(own))
            for name in own:
                if name in state and name not in extra:
                    # A mask among the buffers may well be infinite.
                    states.like(state, name, own[name], finite=name in trained)
        except states.StateError as error:
            about = "the saved weights do not fit this model: "
            raise states.StateError(error.key, error.problem, about=about) from None

    def save_model(self, directory: str | Path) -> None:
        """Write the weights to a directory, which may be a URL."""
        root, name = parted(directory)
        storage = open_storage(root)
        if isinstance(storage, LocalStorage):
            storage.make_root()
        write_model(storage, name, self.state_dict(), {"architecture": self.architecture})

    def load_model(self, directory: str | Path) -> Self:
        """Load weights that `save_model` or a run wrote; return the model."""
        root, name = parted(directory)
        self.load_state_dict(read_model(open_storage(root), name)[0])
        self.is_loaded = True
        return self


def without_model(given: object) -> object:
    """Return the network of a Model, and anything else unchanged.

    A network may itself have an attribute `module`, which is only a part of it.
    """
    return given.module if isinstance(given, Model) else given


def _section(config: StrictConfig | Mapping[str, Any]) -> StrictConfig:
    if isinstance(config, StrictConfig):
        return config
    if "kind" not in config:
        raise ConfigError(f"a model config needs a 'kind', one of: {', '.join(kinds('model'))}")
    section: StrictConfig = validate(
        find("model", config["kind"]).Config, config, source="Model config"
    )
    return section


def compute_loss(kind: Loss, outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean loss of a batch."""
    if kind == "cross_entropy":
        return functional.cross_entropy(outputs, targets)
    if kind == FROM_MODEL:
        raise ConfigError(
            "'loss' is from_model, which this use of a model cannot compute from outputs and targets;"
            " name one of ludus's losses"
        )
    # Targets keep their precision, whatever the network computes in.
    outputs = outputs.float() if outputs.dtype.itemsize < 4 else outputs
    targets = targets.to(outputs.dtype).reshape(outputs.shape)
    return _BY_ELEMENT[kind](outputs, targets)


def count_correct(kind: Loss, outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the number of correct examples: by the largest output, or by the sign of each output.

    An example with many targets (labels, pixels) counts by the fraction of them that are correct.
    """
    if kind == "binary_cross_entropy":
        is_right = (outputs > 0) == (targets.reshape(outputs.shape) > 0.5)
    elif targets.shape == outputs.shape:
        is_right = outputs.argmax(1) == targets.argmax(1)
    else:
        is_right = outputs.argmax(1) == targets
    num_answers = max(is_right.numel() // max(len(is_right), 1), 1)
    return is_right.sum() if num_answers == 1 else is_right.sum() / num_answers
