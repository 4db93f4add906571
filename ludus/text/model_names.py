"""The weights of agents behind an API: the names of their models, and fingerprints of questions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

import torch
from torch import Tensor

from ludus.text.chat import ChatMessage
from ludus.text.scenario import TextDataset


def as_tensor(name: str) -> Tensor:
    """Return a name as a tensor of its bytes: a kept model holds tensors."""
    return torch.tensor(list(name.encode()), dtype=torch.uint8)


def as_name(tensor: Tensor) -> str:
    """Return the name that a tensor holds."""
    return bytes(tensor.tolist()).decode()


def as_names(weights: Mapping[str, Tensor]) -> dict[str, str]:
    """Return the names of the models of kept weights, by group."""
    return {group: as_name(tensor) for group, tensor in weights.items()}


def said(text: str) -> ChatMessage:
    """Return an answer as a message of a conversation."""
    return ChatMessage("assistant", text)


def digest(dataset: TextDataset) -> str:
    """Return a fingerprint of all questions and labels."""
    whole = [{name: list(column) for name, column in dataset.columns.items()}, list(dataset.labels)]
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()
