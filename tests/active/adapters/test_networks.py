"""Networks that are called as those of Hugging Face and timm are."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from ludus.active.adapters.networks import Logits, hidden_features, timm_features
from ludus.core.errors import LudusError
from ludus.core.runtime import InMemoryRuntime
from ludus.nn.model import Model
from tests.active.test_candidates import trainer_of


class Transformer(nn.Module):
    """Called with token ids and a mask by name; gives logits and, if asked, hidden states."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.classifier = nn.Embedding(10, 4), nn.Linear(4, 3)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, output_hidden_states: bool = False
    ) -> Any:
        hidden = self.embed(input_ids)
        states = (hidden, hidden * 2) if output_hidden_states else None
        return SimpleNamespace(logits=self.classifier(hidden[:, 0]), hidden_states=states)


class Convolution(nn.Module):
    """Has the three methods of a timm network."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.fc = nn.Linear(13, 6), nn.Linear(6, 3)

    def forward_features(self, x: Tensor) -> Tensor:
        return self.body(x)[:, :, None]

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        pooled = x.mean(2)
        return pooled if pre_logits else self.fc(pooled)

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(x))


class Sentences(Dataset[Any]):
    def __len__(self) -> int:
        return 30

    def __getitem__(self, row: int) -> Any:
        ids = torch.tensor([row % 10, (row * 7) % 10, 0])
        return {"input_ids": ids, "attention_mask": torch.tensor([1, 1, 0])}, row % 3


def test_a_transformer_learns_and_asks_by_its_hidden_states() -> None:
    trainer = trainer_of(
        model=None, data=None, selection="logme", strategy={"kind": "core_set"},
        evaluate_every_epochs=0, calibration=None,
    )  # fmt: skip
    trainer.loaders["train"] = Sentences()
    trainer.set_model(Logits(Transformer()))
    trainer.set_features(hidden_features)
    trainer.fit(runtime=InMemoryRuntime)
    assert trainer.pool.num_labelled == 16
    assert len(trainer.candidates.scores) == 1


def test_padding_is_no_part_of_the_features() -> None:
    model = Model(Logits(Transformer()))
    ids = torch.tensor([[1, 2, 0], [3, 4, 5]])
    mask = torch.tensor([[1, 1, 0], [1, 1, 1]])
    found = hidden_features(model, {"input_ids": ids, "attention_mask": mask})
    embed = model.module.network.embed.weight  # type: ignore[union-attr]
    assert torch.allclose(found[0], (embed[1] + embed[2]) * 2 / 2)
    assert torch.allclose(found[1], (embed[3] + embed[4] + embed[5]) * 2 / 3)


def test_a_timm_network_gives_what_its_head_is_given() -> None:
    network = Convolution()
    inputs = torch.randn(4, 13)
    assert torch.equal(timm_features(Model(network), inputs), network.body(inputs))
    trainer = trainer_of(model=None, selection="h_score")
    trainer.set_model([network, Convolution()])
    trainer.set_features(timm_features)
    trainer.fit(runtime=InMemoryRuntime)
    assert len(trainer.candidates.scores) == 2


def test_a_network_of_another_shape_is_told() -> None:
    plain = Model(nn.Linear(13, 3))
    with pytest.raises(LudusError, match="no forward_head"):
        timm_features(plain, torch.zeros(1, 13))
    with pytest.raises(LudusError, match=r"Logits\(...\), and this is a Linear"):
        hidden_features(plain, torch.zeros(1, 13))
    with pytest.raises(LudusError, match="has no logits"):
        Logits(nn.Linear(13, 3))(torch.zeros(1, 13))
