"""Dict batches, models that compute their own loss, and networks written for other libraries."""

from __future__ import annotations

from collections import UserDict
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

import ludus
from ludus.core.errors import ConfigError
from ludus.fit.update import count_examples
from ludus.nn.model import Model
from tests.supervised.conftest import history, wines

OWN: dict[str, Any] = {"data": None, "model": None, "engine": "eager", "evaluate_every_epochs": 1}


class Rows(Dataset[dict[str, Tensor]]):
    """Examples as dicts."""

    def __init__(self, count: int = 30) -> None:
        self.inputs, self.targets = wines(count)

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"features": self.inputs[index], "labels": self.targets[index]}


@dataclass
class Said:
    """What a network of another library returns."""

    loss: Tensor | None
    logits: Tensor


class Foreign(nn.Module):
    """A classifier in the manner of transformers: keywords in, an object with loss and logits out."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(13, 3)

    def forward(self, features: Tensor, labels: Tensor | None = None, **more: Any) -> Said:
        logits = self.layer(features)
        loss = None if labels is None else functional.cross_entropy(logits, labels)
        return Said(loss, logits)


def as_user_dict(rows: list[dict[str, Tensor]]) -> UserDict[str, Tensor]:
    """Collate to a UserDict, which a BatchEncoding is."""
    return UserDict(torch.utils.data.default_collate(rows))


def loader(count: int = 30, collate: Any = None) -> DataLoader[Any]:
    return DataLoader(Rows(count), batch_size=8, shuffle=True, collate_fn=collate)


def fitted(tiny: Any, tmp_path: Any, model: Any, **changed: Any) -> Any:
    loaders = changed.pop("loaders", (loader(), loader(20)))
    trainer = ludus.Trainer(tiny(**OWN, **changed), train_loader=loaders[0], val_loader=loaders[1])
    trainer.set_model(model)
    return trainer, trainer.fit(root=tmp_path)


@pytest.mark.parametrize("collate", [None, as_user_dict])
def test_a_model_that_computes_its_loss_learns_as_with_the_loss_by_name(
    tiny, tmp_path, collate
) -> None:
    found = []
    for loss in ("from_model", "cross_entropy"):
        torch.manual_seed(0)
        loaders = (loader(collate=collate), loader(20, collate))
        _, result = fitted(tiny, tmp_path / loss, Foreign(), loss=loss, loaders=loaders)
        names = ("train/epoch_loss", "validation/epoch_loss", "validation/epoch_accuracy")
        found.append([history(result.run_dir, name) for name in names])
        assert all(found[-1])
    assert found[0] == found[1]


def test_the_validation_loss_is_weighted_by_examples(tiny, tmp_path) -> None:
    model = Foreign()
    _, result = fitted(tiny, tmp_path, model, loss="from_model")
    whole = next(iter(DataLoader(Rows(20), batch_size=20)))
    with torch.no_grad():
        expected = float(model(**whole).loss)
    assert history(result.run_dir, "validation/epoch_loss")[-1] == pytest.approx(expected, rel=1e-5)


def test_a_forward_of_one_argument_is_given_the_dict_whole() -> None:
    class Whole(nn.Module):
        def forward(self, batch: Any) -> dict[str, Tensor]:
            return {"loss": batch["features"].mean()}

    batch = next(iter(loader()))
    assert Model(Whole(), loss="from_model").training_step(batch, 0)["loss"].ndim == 0


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (None, "the model returned nothing without a 'loss'; give it the targets"),
        ({"logits": torch.zeros(8, 3)}, "returned a dict of logits without a 'loss'"),
        ((torch.zeros(()), torch.zeros(8, 3)), "returned a tuple; return a dict or an object"),
        (
            {"loss": torch.zeros(8)},
            r"returned a tensor of shape \(8,\) as the loss; return its mean",
        ),
    ],
)
def test_a_model_without_a_loss_is_refused_in_a_sentence(tiny, tmp_path, answer, told) -> None:
    class Without(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(13, 3)

        def forward(self, **batch: Tensor) -> Any:
            return answer

    with pytest.raises(ConfigError, match=f"'loss' is from_model, but.*{told}"):
        fitted(tiny, tmp_path, Without(), loss="from_model")


def test_what_a_forward_does_not_take_is_told(tiny, tmp_path) -> None:
    class Other(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(13, 3)

        def forward(self, pixels: Tensor, labels: Tensor) -> Any: ...

    with pytest.raises(ConfigError, match="but the forward of Other needs pixels; let"):
        fitted(tiny, tmp_path, Other(), loss="from_model")
    other = loader(collate=lambda rows: {"inputs": torch.zeros(8, 13), "target": torch.zeros(8)})
    with pytest.raises(ConfigError, match="of inputs, target, without 'labels'"):
        fitted(tiny, tmp_path, Foreign(), loaders=(other, other))


def test_a_step_of_your_own_that_returns_nothing_is_told(tiny, tmp_path) -> None:
    class Silent(Model):
        def evaluation_step(self, batch: Any, batch_idx: int) -> Any:
            return None

    with pytest.raises(ConfigError, match="evaluation_step returned no 'loss' but nothing"):
        fitted(tiny, tmp_path, Silent(Foreign()))

    class SilentInTraining(Model):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return None

        def evaluation_step(self, batch: Any, batch_idx: int) -> Any:
            return Model.training_step(self, batch, batch_idx)

    with pytest.raises(ludus.LudusError, match="training_step returned no 'loss' but nothing"):
        fitted(tiny, tmp_path, SilentInTraining(Foreign()))


def test_rows_are_counted_whatever_else_a_dict_holds() -> None:
    batch = {"num_items": torch.tensor(3), "input_ids": torch.zeros(5, 7), "labels": torch.zeros(5)}
    assert count_examples(batch) == count_examples(UserDict(batch)) == 5


class Tied(nn.Module):
    """A language model whose last layer is its embedding, with a buffer that torch does not save."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 6)
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("position_ids", torch.arange(4), persistent=False)

    def forward(self, input_ids: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.head(
            self.embedding(input_ids) + self.position_ids[: input_ids.shape[1], None]
        )
        return {"loss": functional.cross_entropy(logits.flatten(0, 1), labels.flatten())}


class Words(Dataset[dict[str, Tensor]]):
    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        words = torch.arange(index, index + 5) % 11
        return {"input_ids": words[:-1], "labels": words[1:]}


def test_tied_weights_are_saved_once_and_stay_tied(tiny, tmp_path) -> None:
    words = DataLoader(Words(), batch_size=4)
    trainer, _ = fitted(tiny, tmp_path, Tied(), loss="from_model", loaders=(words, words))
    module = trainer.model.module
    assert module.head.weight is module.embedding.weight
    assert trainer.flat.names == ["embedding.weight"]
    state = trainer.model.state_dict()
    assert [*state] == ["embedding.weight", "position_ids"]
    other = Model(Tied(), loss="from_model")
    other.load_state_dict({name: tensor.clone() for name, tensor in state.items()})
    assert torch.equal(other.module.head.weight, module.head.weight)
    assert other.module.head.weight is other.module.embedding.weight
    # Earlier versions saved both names.
    other.load_state_dict({**state, "head.weight": state["embedding.weight"]})


class Complex(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(13, 3, dtype=torch.complex64))

    def forward(self, features: Tensor) -> Tensor:
        return (features.to(torch.complex64) @ self.weight).abs()


class Sparse(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.layer = nn.Embedding(2, 5, sparse=True), nn.LazyLinear(3)

    def forward(self, features: Tensor) -> Tensor:
        return self.layer(self.embedding((features > 0).long()).mean(1))


def test_lazy_layers_and_sparse_embeddings_learn_and_complex_weights_are_refused(
    tiny, tmp_path
) -> None:
    trainer, _ = fitted(tiny, tmp_path / "sparse", Sparse())
    assert {*trainer.flat.names} == {"embedding.weight", "layer.weight", "layer.bias"}
    with pytest.raises(ConfigError, match="the parameter weight is complex, which no optimizer"):
        fitted(tiny, tmp_path / "complex", Complex())


def test_an_active_learner_looks_at_the_logits_of_such_a_network(tmp_path) -> None:
    from tests.active.strategies.test_refusals import small

    trainer = ludus.build_trainer(small("entropy", model=None))
    trainer.set_model(Foreign())
    assert trainer.fit(root=tmp_path).status == "finished"
