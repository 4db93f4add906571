"""Tokens of a training file: what each example's tokens are, and which of them are learned.

Shapes: N sequences, T tokens of a batch's longest sequence, K learned tokens of a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ludus.core.errors import LudusError
from ludus.core.object_walker import digest_of
from ludus.text.models.tokenizer import ChatTokenizer
from ludus.text.tuning.lines import (
    BadLinesError,
    Conversation,
    PlainText,
    TrainingExample,
    TrainingText,
)


@dataclass(frozen=True)
class TokenTable:
    """The sequences of all examples, one after the other."""

    tokens: Tensor
    """All tokens in a row, int64."""
    is_trained: Tensor
    """Which of them are learned; never the first of a sequence, which nothing predicts."""
    starts: Tensor
    """Where each sequence begins."""
    lengths: Tensor
    per_example: int
    """The number of sequences of an example: 2 for preferences, the chosen one first."""
    pad: int
    """The token that fills a batch up."""

    def __len__(self) -> int:
        """Return the number of examples."""
        return len(self.starts) // self.per_example

    @property
    def example_lengths(self) -> Tensor:
        """The number of tokens of each example, prompts included."""
        return self.lengths.view(-1, self.per_example).sum(1)

    def digest(self) -> str:
        """Return a digest of everything that training reads."""
        return digest_of([self.tokens, self.is_trained, self.starts, self.per_example])


class TokenBatch(NamedTuple):
    """Sequences of some examples, filled up on the right; of preferences the chosen ones come first."""

    rows: Tensor
    """The examples, by their place in the file."""
    inputs: Tensor
    """All tokens but the last of each sequence."""
    places: Tensor
    """Where in the flattened inputs the learned tokens are predicted."""
    targets: Tensor
    """The learned tokens."""
    sequences: Tensor
    """The sequence of each learned token."""


def tokenise(
    examples: Sequence[TrainingExample], tokenizer: ChatTokenizer, *, context: int, source: str
) -> TokenTable:
    """Return the tokens of all examples; raise BadLinesError for those longer than the context."""
    tokens: list[int] = []
    is_trained: list[bool] = []
    starts: list[int] = []
    problems: dict[int, str] = {}
    for example in examples:
        for sample in example.samples:
            own, mask = _encoded(sample, tokenizer)
            if len(own) > context:
                problems[example.line] = (
                    f"is {len(own)} tokens long, and the context of the model is {context}; shorten it"
                )
            mask[0] = False
            if not any(mask):
                problems[example.line] = "has no token to learn: its completion is empty"
            starts.append(len(tokens))
            tokens += own
            is_trained += mask
    if problems:
        raise BadLinesError(source, problems)
    starts_N = torch.tensor(starts)
    ends_N = torch.tensor([*starts[1:], len(tokens)])
    return TokenTable(
        torch.tensor(tokens),
        torch.tensor(is_trained),
        starts_N,
        ends_N - starts_N,
        len(examples[0].samples),
        tokenizer.pad,
    )


def _encoded(sample: TrainingText, tokenizer: ChatTokenizer) -> tuple[list[int], list[bool]]:
    """Return the tokens of a sample and which are learned."""
    if isinstance(sample, PlainText):
        prompt, completion = tokenizer.encode(sample.prompt), tokenizer.encode(sample.completion)
        completion.append(tokenizer.end_of_message)
        return [*prompt, *completion], [False] * len(prompt) + [True] * len(completion)
    tokens, mask = tokenizer.encode_with_mask(sample.messages)
    return tokens, mask if all(sample.is_trained) else _only_trained(mask, sample)


def _only_trained(mask: list[bool], sample: Conversation) -> list[bool]:
    """Return the mask without the assistant messages that are not learned."""
    found, message, was = [], -1, False
    for is_assistants in mask:
        message += is_assistants and not was
        found.append(is_assistants and sample.is_trained[message])
        was = is_assistants
    if message + 1 != len(sample.is_trained):
        raise LudusError(
            f"the chat template of the model writes {len(sample.is_trained)} assistant messages as"
            f" {message + 1}, so weights of messages cannot be kept apart; put other messages between them"
        )
    return found


def make_batch(table: TokenTable, rows_B: Tensor, *, device: torch.device) -> TokenBatch:
    """Return the sequences of these examples, as long as the longest of them."""
    firsts = rows_B * table.per_example
    sequences = torch.cat([firsts + index for index in range(table.per_example)])
    starts_N1, lengths_N1 = (
        one.index_select(0, sequences).unsqueeze(1) for one in (table.starts, table.lengths)
    )
    steps_T = torch.arange(int(lengths_N1.max()))
    is_inside_NT = steps_T < lengths_N1
    places_NT = (starts_N1 + steps_T).clamp_max_(len(table.tokens) - 1)
    tokens_NT = table.tokens[places_NT].masked_fill_(~is_inside_NT, table.pad)
    is_trained_NT = table.is_trained[places_NT].logical_and_(is_inside_NT)[:, 1:]
    places_K = is_trained_NT.flatten().nonzero().squeeze(1)
    columns = (
        rows_B,
        tokens_NT[:, :-1].contiguous(),
        places_K,
        tokens_NT[:, 1:].flatten().index_select(0, places_K),
        places_K // is_trained_NT.shape[1],
    )
    return TokenBatch(*(column.to(device, non_blocking=True) for column in columns))
