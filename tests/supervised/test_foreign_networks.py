"""Networks in the manner of torchvision and timm, which are not installed: the same layers."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import ludus
from ludus.nn.model import Model
from ludus.testing.trainers import check_kill_anywhere
from tests.supervised.small_huggingface import small

Outputs = namedtuple("Outputs", ["logits", "aux_logits"])


class BasicBlock(nn.Module):
    """A residual block of torchvision's ResNet."""

    def __init__(self, inputs: int, planes: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, planes, 3, stride=stride, padding=1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(planes), nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.downsample = nn.Sequential(
            nn.Conv2d(inputs, planes, 1, stride=stride, bias=False), nn.BatchNorm2d(planes)
        )

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(out + self.downsample(x))


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer1, self.layer2 = BasicBlock(3, 4, 1), BasicBlock(4, 8, 2)
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Any:
        return self.fc(self.avgpool(self.layer2(self.layer1(x))).flatten(1))


class WithAux(ResNet):
    """As Inception returns it: outputs, and those of a second head."""

    def forward(self, x: Tensor) -> Any:
        outputs = super().forward(x)
        return Outputs(outputs, outputs)


class Segmenter(ResNet):
    """As torchvision's segmentation models return it, pixels being one."""

    def forward(self, x: Tensor) -> Any:
        return OrderedDict(out=super().forward(x))


class VisionTransformer(nn.Module):
    """timm's vision transformer: a class token, position embeddings, blocks with attention and drop path."""

    def __init__(self) -> None:
        super().__init__()
        self.patch_embed = nn.Conv2d(3, 8, 4, stride=4)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, 8))
        self.pos_embed = nn.Parameter(torch.randn(1, 5, 8) * 0.02)
        self.norm1, self.norm2, self.norm = nn.LayerNorm(8), nn.LayerNorm(8), nn.LayerNorm(8)
        self.qkv, self.proj = nn.Linear(8, 24), nn.Linear(8, 8)
        self.mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
        self.head = nn.Linear(8, 3)

    def _drop_path(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        return x * x.new_empty(x.shape[0], 1, 1).bernoulli_(0.9) / 0.9

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1) + self.pos_embed
        q, k, v = self.qkv(self.norm1(x)).reshape(len(x), 5, 3, 2, 4).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self._drop_path(self.proj(attended.transpose(1, 2).reshape(len(x), 5, 8)))
        x = x + self._drop_path(self.mlp(self.norm2(x)))
        return self.head(self.norm(x)[:, 0])


class Pictures(Dataset[tuple[Tensor, int]]):
    """Pictures with an augmentation by chance."""

    def __init__(self) -> None:
        self.pictures = torch.randn(24, 3, 8, 8, generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        picture = self.pictures[index]
        return picture.flip(2) if torch.rand(()) < 0.5 else picture, index % 3


def trainer_of(network: type[nn.Module], **changed: Any) -> Any:
    pictures = DataLoader(Pictures(), batch_size=8, shuffle=True)
    trainer = ludus.Trainer(
        small(None, None, loss="cross_entropy", **changed),
        train_loader=pictures,
        val_loader=pictures,
    )
    torch.manual_seed(0)
    trainer.set_model(network())
    return trainer


@pytest.mark.parametrize("network", [ResNet, VisionTransformer])
def test_a_run_with_such_a_network_can_be_killed_anywhere(network, tmp_path) -> None:
    check_kill_anywhere(lambda: trainer_of(network, ema_decay=0.9), tmp_path, max_kills=2)


@pytest.mark.parametrize("network", [WithAux, Segmenter])
def test_outputs_are_found_in_answers_of_several_parts(network, tmp_path) -> None:
    trainer = trainer_of(network, max_epochs=1)
    trainer.fit(root=tmp_path)
    pictures = torch.zeros(2, 3, 8, 8)
    outputs = trainer.model.eval()(pictures)
    assert torch.equal(outputs, ResNet.forward(trainer.model.module, pictures))


def test_a_pair_of_a_dict_and_targets_is_given_by_keywords() -> None:
    class Two(nn.Module):
        def forward(self, image: Tensor, table: Tensor) -> Tensor:
            return image + table

    inputs = {"image": torch.ones(4, 3), "table": torch.eye(4, 3)}
    model = Model(Two(), loss="cross_entropy")
    assert model.training_step((inputs, torch.tensor([0, 1, 2, 2])), 0)["correct"] == 3
