"""Examples become tokens, of which only the assistant's are learned, and batches of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ludus.core.errors import LudusError
from ludus.text.models.byte_tokenizer import ByteTokenizer
from ludus.text.tuning.batches import TokenBatches
from ludus.text.tuning.lines import BadLinesError, read_lines
from ludus.text.tuning.tokens import TokenTable, make_batch, tokenise
from tests.text.tuning.small import chat, jsonl

CPU = torch.device("cpu")
END = ByteTokenizer.end_of_message


def table_of(*lines: dict[str, Any], method: Any = "supervised", context: int = 64) -> TokenTable:
    examples = read_lines(jsonl(lines), method, source="train.jsonl")
    return tokenise(examples, ByteTokenizer(), context=context, source="train.jsonl")


def learned(table: TokenTable, *rows: int) -> list[list[int]]:
    """Return the learned tokens of each sequence of a batch of these examples."""
    batch = make_batch(table, torch.tensor(rows), device=CPU)
    found: list[list[int]] = [[] for _ in batch.inputs]
    for sequence, target in zip(batch.sequences.tolist(), batch.targets.tolist(), strict=True):
        found[sequence].append(target)
    return found


def test_only_what_the_assistant_said_is_learned_and_that_it_ended() -> None:
    table = table_of(chat("question", "yes"), chat("a", "no", "b", "so"))
    assert learned(table, 0, 1) == [[*b"yes", END], [*b"no", END, *b"so", END]]


def test_a_message_of_weight_0_is_not_learned() -> None:
    line = chat("a", "no", "b", "so")
    line["messages"][1]["weight"] = 0
    assert learned(table_of(line), 0) == [[*b"so", END]]


def test_a_text_is_learned_from_its_second_token_on_and_a_prompt_is_not() -> None:
    table = table_of({"text": "abc"}, {"prompt": "ab", "completion": "c"})
    assert learned(table, 0, 1) == [[*b"bc", END], [*b"c", END]]


@pytest.mark.parametrize("line", [{"text": ""}, {"prompt": "", "completion": ""}])
def test_an_example_of_which_nothing_can_be_predicted_is_refused(line: dict[str, Any]) -> None:
    with pytest.raises(BadLinesError, match="line 2 has no token to learn"):
        table_of({"text": "a"}, line)


def test_the_chosen_answers_of_a_batch_come_first() -> None:
    lines = [{"prompt": "x", "chosen": one, "rejected": other} for one, other in ("ab", "cd")]
    table = table_of(*lines, method="dpo")
    assert (len(table), table.per_example) == (2, 2)
    assert learned(table, 1, 0) == [[*b"c", END], [*b"a", END], [*b"d", END], [*b"b", END]]


def test_a_batch_is_as_long_as_its_longest_sequence() -> None:
    table = table_of(chat("a", "b"), chat("a" * 30, "b"))
    assert make_batch(table, torch.tensor([0]), device=CPU).inputs.shape == (1, 6)
    batch = make_batch(table, torch.tensor([0, 1]), device=CPU)
    assert batch.inputs.shape == (2, 35)
    assert batch.inputs[0, 7:].unique().tolist() == [ByteTokenizer.pad]


def test_each_place_is_that_before_its_target() -> None:
    table = table_of(chat("abc", "xyz"), chat("defgh", "u"))
    batch = make_batch(table, torch.tensor([0, 1]), device=CPU)
    width = batch.inputs.shape[1]
    for place, target in zip(batch.places.tolist(), batch.targets.tolist(), strict=True):
        row, column = divmod(place, width)
        assert table.tokens[table.starts[row] + column + 1] == target


def test_examples_longer_than_the_context_are_refused_by_line_and_length() -> None:
    long = chat("a" * 70, "b")
    assert len(table_of(chat("a", "b"), context=7)) == 1
    with pytest.raises(
        BadLinesError, match=r"line 2 is 76 tokens long.* context of the model is 64"
    ):
        table_of(chat("a", "b"), long)
    with pytest.raises(BadLinesError, match="line 1 is 7 tokens long"):
        table_of(chat("a", "b"), context=6)


def test_an_epoch_has_every_example_once_in_an_order_of_seed_and_epoch() -> None:
    table = table_of(*(chat("a", chr(97 + i) * (i + 1)) for i in range(10)))

    def rows(seed: int, epoch: int) -> list[list[int]]:
        batches = TokenBatches(table, batch_size=4, seed=seed, device=CPU)
        batches.start(epoch)
        found, num_tokens = [], 0
        while not batches.has_ended():
            found.append(batches.next().rows.tolist())
            num_tokens += batches.num_tokens
        assert num_tokens == len(table.tokens)
        return found

    first = rows(0, 0)
    assert [len(one) for one in first] == [4, 4, 2]
    assert sorted(row for one in first for row in one) == list(range(10))
    assert first == rows(0, 0)
    assert len({str(rows(seed, epoch)) for seed in (0, 1) for epoch in (0, 1)}) == 4


def test_batches_go_on_where_they_were() -> None:
    table = table_of(*(chat("a", "b") for _ in range(10)))
    whole, part = (TokenBatches(table, batch_size=2, seed=3, device=CPU) for _ in range(2))
    whole.start(1)
    whole.next()
    part.load_state_dict(whole.state_dict())
    assert torch.equal(whole.next().rows, part.next().rows)


class Merging(ByteTokenizer):
    """A tokenizer whose chat template writes nothing between two messages of the assistant."""

    def encode_with_mask(self, messages: Any) -> tuple[list[int], list[bool]]:
        tokens, mask = super().encode_with_mask(messages)
        return tokens, [False, *[True] * (len(mask) - 1)]


def test_weights_that_a_chat_template_cannot_keep_apart_are_refused() -> None:
    line = {"messages": [{"role": "assistant", "content": "a", "weight": 0},
                         {"role": "assistant", "content": "b"}]}  # fmt: skip
    examples = read_lines(jsonl([line]), "supervised", source="x")
    with pytest.raises(LudusError, match="2 assistant messages as 1"):
        tokenise(examples, Merging(), context=64, source="x")


def test_other_tokens_have_another_digest() -> None:
    one = table_of(chat("a", "b")).digest()
    assert one == table_of(chat("a", "b")).digest()
    assert one not in (table_of(chat("a", "c")).digest(), table_of({"text": "a"}).digest())
