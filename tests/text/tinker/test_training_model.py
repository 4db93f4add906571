"""Gradients, steps and adapters of a model that is trained through an API."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from ludus.text.models.language_model import load_model
from ludus.text.models.library import ModelLibrary
from ludus.text.server.tinker import training_model as module
from ludus.text.server.tinker.datums import DatumBatch
from ludus.text.server.tinker.lora import AdaptedLinear, LoraShape, adapt, merged
from ludus.text.server.tinker.requests import AdamParams
from ludus.text.server.tinker.training_model import TrainingModel
from tests.text.tinker.support import LORA, batch, make_library, training_model


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ModelLibrary:
    return make_library(tmp_path_factory.mktemp("library"))


def of(body: dict[str, Any]) -> DatumBatch:
    return DatumBatch.from_json(body)


def weights_of(model: TrainingModel) -> dict[str, torch.Tensor]:
    return {name: weight.clone() for name, weight in model.learner.weights().items()}


class PlainAdamW:
    """AdamW as it is written in papers, in float64."""

    def __init__(self, weights: list[torch.Tensor]) -> None:
        self.weights = [one.detach().double() for one in weights]
        self._first = [torch.zeros_like(one) for one in self.weights]
        self._second = [torch.zeros_like(one) for one in self.weights]
        self._count = 0

    def step(self, gradients: list[torch.Tensor], params: AdamParams) -> float:
        """Take a step and return the norm of the gradients before clipping."""
        self._count += 1
        norm = math.sqrt(sum(float(one.double().square().sum()) for one in gradients))
        limit = params.grad_clip_norm
        scale = limit / norm if 0 < limit < norm else 1.0
        rows = zip(self.weights, gradients, self._first, self._second, strict=True)
        for weight, gradient, first, second in rows:
            gradient = gradient.double() * scale
            first.mul_(params.beta1).add_(gradient, alpha=1 - params.beta1)
            second.mul_(params.beta2).add_(gradient.square(), alpha=1 - params.beta2)
            weight.mul_(1 - params.learning_rate * params.weight_decay)
            mean = first / (1 - params.beta1**self._count)
            square = second / (1 - params.beta2**self._count)
            weight.sub_(params.learning_rate * mean / (square.sqrt() + params.eps))
        return norm


def test_steps_are_those_of_adamw_with_changing_constants(library: ModelLibrary) -> None:
    model = training_model(library)
    texts = ("hello", "the longest of all", "hi")
    # The constants of a step are those of its request; the bias corrections of torch follow them too.
    steps = [
        AdamParams(learning_rate=0.01),
        AdamParams(learning_rate=0.02, beta1=0.5, beta2=0.9, weight_decay=0.3),
        AdamParams(learning_rate=0.005, weight_decay=0.3, grad_clip_norm=0.05, eps=1e-3),
    ]
    plain = PlainAdamW(list(model.learner.flat.by_name(model.learner.flat.vectors).values()))
    for params in steps:
        model.forward_backward(of(batch(*texts[:2])))
        model.forward_backward(of(batch(texts[2])))
        gradients = list(model.learner.flat.gradients_by_name().values())
        norm = plain.step([one.clone() for one in gradients], params)
        found = model.optim_step(params)
        assert found["grad_norm"] == pytest.approx(norm, rel=1e-4)
        assert found["num_batches"] == 2
    own = model.learner.flat.by_name(model.learner.flat.vectors)
    for weight, expected in zip(own.values(), plain.weights, strict=True):
        torch.testing.assert_close(weight.double(), expected, rtol=2e-4, atol=2e-6)


def test_the_gradient_is_that_of_the_sum_of_all_batches(library: ModelLibrary) -> None:
    model = training_model(library)
    plain = load_model(library.directory("tiny"), name="tiny").module
    texts = ("hello", "the longest of all", "hi")
    for text in texts:
        tokens = torch.tensor([list(text.encode())])
        cross_entropy(plain(tokens[:, :-1])[0], tokens[0, 1:], reduction="sum").backward()
    model.forward_backward(of(batch(*texts[:2])))
    model.forward_backward(of(batch(texts[2])))
    own = model.learner.flat.gradients_by_name()
    for name, weight in plain.named_parameters():
        torch.testing.assert_close(own[name], weight.grad, rtol=1e-4, atol=1e-6)


def gradient_of(model: TrainingModel, body: dict[str, Any]) -> torch.Tensor:
    model.learner.flat.clear_gradients()
    model.forward_backward(of(body))
    return model.learner.flat.gradients[0].clone()


def test_on_policy_every_loss_has_the_policy_gradient(library: ModelLibrary) -> None:
    model = training_model(library)
    advantages = [0.5, -1.0, 0.0, 2.0]
    old = model.forward(of(batch("hello"))).logprobs.tolist()
    weighted = gradient_of(model, batch("hello", weights=advantages))
    for loss in ("importance_sampling", "ppo"):
        body = batch("hello", loss=loss, logprobs=old, advantages=advantages)
        torch.testing.assert_close(gradient_of(model, body), weighted, rtol=1e-4, atol=1e-6)
        assert model.forward(of(body)).metrics["loss:sum"] == pytest.approx(-1.5, rel=1e-4)


def test_ppo_stops_where_the_ratio_has_left_its_bounds(library: ModelLibrary) -> None:
    model = training_model(library)
    new = model.forward(of(batch("hello"))).logprobs
    far = {"logprobs": (new - 1.0).tolist(), "advantages": [1.0] * 4}
    assert not gradient_of(model, batch("hello", loss="ppo", **far)).any()
    assert gradient_of(model, batch("hello", loss="importance_sampling", **far)).any()
    wide = {**batch("hello", loss="ppo", **far), "config": {"clip_high_threshold": 3.0}}
    assert gradient_of(model, wide).any()


def test_a_batch_in_small_groups_is_the_same_batch(
    library: ModelLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = batch("hello", "x" * 20, "hi", "there is more", "abc")
    model = training_model(library)
    whole, gradient = model.forward(of(body)), gradient_of(model, body)
    monkeypatch.setattr(module, "_MAX_TOKENS", 16)
    parts = model.forward(of(body))
    np.testing.assert_allclose(parts.logprobs, whole.logprobs, rtol=1e-5)
    assert parts.lengths == whole.lengths == (4, 19, 1, 12, 2)
    torch.testing.assert_close(gradient_of(model, body), gradient, rtol=1e-4, atol=1e-6)


def test_a_forward_pass_leaves_no_gradient_and_no_trace(library: ModelLibrary) -> None:
    model = training_model(library)
    before = weights_of(model)
    model.forward(of(batch("hello")))
    assert not model.learner.flat.gradients[0].any()
    assert all(torch.equal(one, before[name]) for name, one in weights_of(model).items())


def test_adapters_begin_as_the_model_and_are_all_that_is_trained(library: ModelLibrary) -> None:
    plain, adapted = training_model(library), training_model(library, LORA)
    body = batch("hello")
    before = plain.forward(of(body)).logprobs
    np.testing.assert_array_equal(adapted.forward(of(body)).logprobs, before)
    names = adapted.learner.flat.names
    assert all(name.endswith((".up", ".down")) for name in names)
    assert any(name.startswith("lm_head") for name in names)
    frozen = {k: v for k, v in weights_of(adapted).items() if k not in names}
    adapted.forward_backward(of(body))
    adapted.optim_step(AdamParams(learning_rate=0.01))
    now = weights_of(adapted)
    assert all(torch.equal(now[name], weight) for name, weight in frozen.items())
    assert adapted.forward(of(body)).logprobs.sum() > before.sum()


def test_a_saved_model_has_its_adapters_merged(library: ModelLibrary, tmp_path: Path) -> None:
    adapted = training_model(library, LORA)
    for _ in range(3):
        adapted.forward_backward(of(batch("hello")))
        adapted.optim_step(AdamParams(learning_rate=0.05))
    adapted.save_model(tmp_path)
    loaded = load_model(tmp_path, name="merged")
    tokens = torch.tensor([list(b"hello")])
    with torch.no_grad():
        expected = adapted.model.module(tokens)
        torch.testing.assert_close(loaded.module(tokens), expected, rtol=1e-4, atol=1e-5)
        with merged(adapted.model.module):
            assert not any(isinstance(one, AdaptedLinear) for one in adapted.model.module.modules())
        assert torch.equal(adapted.model.module(tokens), expected)


@pytest.mark.parametrize(
    ("attention", "mlp", "output", "parts"),
    [(True, False, False, 4), (False, True, False, 3), (False, False, True, 1)],
)
def test_adapters_are_put_where_they_were_asked_for(
    library: ModelLibrary, attention: bool, mlp: bool, output: bool, parts: int
) -> None:
    network = load_model(library.directory("tiny"), name="tiny").module
    adapt(network, LoraShape(4, 1, attention, mlp, output))
    assert sum(isinstance(one, AdaptedLinear) for one in network.modules()) == parts


def test_adapters_follow_from_their_seed(library: ModelLibrary) -> None:
    seeds = (1, 1, 2)
    found = []
    for seed in seeds:
        model = training_model(library, LoraShape(4, seed, True, True, True))
        found.append(model.learner.flat.vectors[0].clone())
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


@pytest.mark.parametrize("lora", [None, LORA])
def test_a_state_holds_weights_moments_and_the_gradient_that_waits(
    library: ModelLibrary, tmp_path: Path, lora: LoraShape | None
) -> None:
    first, second = training_model(library, lora), training_model(library, lora)
    first.forward_backward(of(batch("hello")))
    first.optim_step(AdamParams(learning_rate=0.01, beta1=0.5))
    first.forward_backward(of(batch("there")))
    second.load_state_dict(first.state_dict())
    for model in (first, second):
        model.forward_backward(of(batch("again")))
        assert model.optim_step(AdamParams(learning_rate=0.01))["num_batches"] == 2
    assert all(torch.equal(a, b) for a, b in zip(
        weights_of(first).values(), weights_of(second).values(), strict=True
    ))  # fmt: skip
