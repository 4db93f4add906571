"""What the name of a metric says: of which episodes or data it is, of which agent, and what it measures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ludus.config import families
from ludus.judge.directions import known_direction

MANY = 18
"""Up to so many figures a record is shown whole and in its own order."""

_LEARNED = ("train", "rollout", "pretraining")
_CHOSEN_BY = ("eval", "validation")
_EVALUATED = (*_CHOSEN_BY, "test")


@dataclass(frozen=True)
class Parts:
    """A name such as eval/verifier/accuracy, taken apart."""

    split: str
    """Of what it is, eval; empty where the name does not begin so."""
    owner: str
    """Whose it is, verifier; empty where it is of the whole, or nobody's."""
    kind: str
    """What is measured, accuracy."""

    @property
    def line(self) -> str:
        """Of what it is, in one word: train, eval or test; pretraining is learning, too."""
        word = self.split.rpartition("/")[2]
        return "eval" if word in _CHOSEN_BY else "test" if word == "test" else "train"


def may_choose_best(name: str) -> bool:
    """Return whether a metric is of data by which the best model may be chosen."""
    return any(word in _CHOSEN_BY for word in _leading(name))


def is_evaluation(name: str) -> bool:
    """Return whether a metric is of an evaluation rather than of learning."""
    return any(word in _EVALUATED for word in _leading(name))


def taken_apart(names: Iterable[str]) -> dict[str, Parts]:
    """Return the parts of each name; what is an owner follows from all of them.

    In eval/verifier/accuracy the verifier is one, if there is an eval/accuracy or another's accuracy
    beside it; then it is one in eval/bits/verifier, too, where bits are measured.
    """
    behind = {name: tuple(name.split("/")[len(_leading(name)) :]) for name in names}
    ours = [rest for name, rest in behind.items() if _leading(name)]
    pairs = {rest for rest in ours if len(rest) == 2 and not rest[1].isdigit()}
    # Where the last word is one that others begin with, the owner stands last.
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


def by_telling(names: Iterable[str]) -> list[str]:
    """Return the names of figures, those that tell most first.

    These are losses and scores of the whole, what else was evaluated of the whole, then the scores of
    each agent.
    """
    scores = families.directions()
    return sorted(names, key=lambda name: _rank(name, scores))


def telling_first(record: Mapping[str, object]) -> list[str]:
    """Return the names of a record as they stand there; of many, texts and what tells most first."""
    if len(record) <= MANY:
        return list(record)
    texts = [name for name, value in record.items() if isinstance(value, str)]
    return [*texts, *by_telling(name for name in record if name not in texts)]


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
    """Return the words at the beginning that say of what it is; the last word never does."""
    leading: list[str] = []
    for word in name.split("/")[:-1]:
        if word not in (*_LEARNED, *_EVALUATED):
            break
        leading.append(word)
    return leading
