"""Parse metric names: the split (train, eval, test), the agent that owns the metric, and what it measures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ludus.config import families
from ludus.judge.directions import known_direction

_LEARNED = ("train", "rollout", "pretraining")
_CHOSEN_BY = ("eval", "validation")
_EVALUATED = (*_CHOSEN_BY, "test")


@dataclass(frozen=True)
class Parts:
    """Parts of a name such as eval/verifier/accuracy."""

    split: str
    """The split, such as eval; empty if the name does not begin with one."""
    owner: str
    """The owner, such as verifier; empty if the metric has none or covers the whole."""
    kind: str
    """The measure, such as accuracy."""

    @property
    def line(self) -> str:
        """The split in one word: train, eval or test; pretraining counts as train."""
        word = self.split.rpartition("/")[2]
        return "eval" if word in _CHOSEN_BY else "test" if word == "test" else "train"


def may_choose_best(name: str) -> bool:
    """Return whether the best model may be chosen by this metric, given its split."""
    return any(word in _CHOSEN_BY for word in _leading(name))


def is_evaluation(name: str) -> bool:
    """Return whether a metric comes from an evaluation rather than from training."""
    return any(word in _EVALUATED for word in _leading(name))


def taken_apart(names: Iterable[str]) -> dict[str, Parts]:
    """Return the parts of each name; which words are owners follows from all names together.

    In eval/verifier/accuracy the verifier is an owner if there is also an eval/accuracy or another agent's
    accuracy; it is then also the owner in eval/bits/verifier, where bits are measured.
    """
    behind = {name: tuple(name.split("/")[len(_leading(name)) :]) for name in names}
    ours = [rest for name, rest in behind.items() if _leading(name)]
    pairs = {rest for rest in ours if len(rest) == 2 and not rest[1].isdigit()}
    # If the last word begins other names, the owner comes last.
    pairs = {rest for rest in pairs if rest[1] not in {first for first, _ in pairs}}
    measured = Counter(rest[-1] for rest in {*pairs, *(rest for rest in ours if len(rest) == 1)})
    owners = {owner for owner, kind in pairs if measured[kind] > 1}
    return {name: _parts(name, rest, owners) for name, rest in behind.items()}


def _parts(name: str, rest: tuple[str, ...], owners: set[str]) -> Parts:
    split = "/".join(_leading(name))
    if split and len(rest) == 2 and rest[0] in owners:
        return Parts(split, *rest)
    if split and len(rest) == 2 and rest[1] in owners:
        return Parts(split, rest[1], rest[0])
    before, _, last = name.rpartition("/")
    kind = before.rpartition("/")[2] if last.isdigit() and before else last or name
    return Parts(split, "", kind)


def by_information(names: Iterable[str]) -> list[str]:
    """Return the names of metrics, the most informative first.

    These are losses and scores of the whole, other evaluations of the whole, then the scores of each agent.
    """
    scores = families.directions()
    return sorted(names, key=lambda name: _rank(name, scores))


def most_informative(record: Mapping[str, object]) -> list[str]:
    """Return the names of a record in order: texts, then the most informative first."""
    texts = [name for name, value in record.items() if isinstance(value, str)]
    return [*texts, *by_information(name for name in record if name not in texts)]


def _rank(name: str, scores: Mapping[str, str]) -> tuple[object, ...]:
    leading, last = _leading(name), name.rpartition("/")[2]
    is_whole = name.count("/") == len(leading)
    is_evaluated = is_evaluation(name)
    is_score = last in scores
    if is_whole:
        group = 0 if is_score else 1 if is_evaluated else 4
    else:
        group = 5 if not is_score else 2 if is_evaluated else 3
    has_direction = known_direction(last) is not None
    return "pretraining" in leading, group, last != "loss", not is_evaluated, not has_direction


def _leading(name: str) -> list[str]:
    """Return the leading words that name the split; the last word never does."""
    leading: list[str] = []
    for word in name.split("/")[:-1]:
        if word not in (*_LEARNED, *_EVALUATED):
            break
        leading.append(word)
    return leading
