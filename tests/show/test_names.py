"""A name tells whose a metric is, and which of many figures tell most."""

from __future__ import annotations

from ludus.show.names import (
    Parts,
    by_information,
    is_evaluation,
    most_informative,
    taken_apart,
)

ARENA = [
    *("eval/verifier/accuracy", "eval/verifier/reward", "eval/prover/reward", "eval/accuracy"),
    *(
        "eval/bits/verifier",
        "eval/words/verifier",
        "pretraining/eval/prover/accuracy",
        "eval/rounds",
    ),
    *("train/verifier/reward_std", "train/grad_norm", "train/accuracy", "train/loss"),
]


def test_an_agent_is_told_from_what_is_measured():
    parts = taken_apart(ARENA)
    assert parts["eval/verifier/accuracy"] == Parts("eval", "verifier", "accuracy")
    assert parts["pretraining/eval/prover/accuracy"] == Parts(
        "pretraining/eval", "prover", "accuracy"
    )
    assert parts["eval/accuracy"] == Parts("eval", "", "accuracy")
    # An analyser names its agents last.
    assert parts["eval/bits/verifier"] == Parts("eval", "verifier", "bits")
    assert parts["eval/words/verifier"] == Parts("eval", "verifier", "words")


def test_names_of_other_families_have_no_owner():
    names = ["pool/share/0", "pool/share/largest", "eval/rho/a_vs_b", "eval/rho/b_vs_a"]
    names += ["layers/host/body", "train/loss", "validation/loss", "host/loss", "2", "a/"]
    parts = taken_apart(names)
    assert {part.owner for part in parts.values()} == {""}
    kinds = [part.kind for part in parts.values()]
    assert kinds == [
        *("share", "largest", "a_vs_b", "b_vs_a", "body", "loss", "loss", "loss", "2", "a/")
    ]


def test_what_is_evaluated_in_pretraining_is_an_evaluation():
    names = ("eval/accuracy", "pretraining/eval/prover/accuracy", "test/loss", "validation/loss")
    assert all(map(is_evaluation, names))
    assert not any(map(is_evaluation, ("train/eval_steps", "evaluation", "test", "pool/eval/x")))


def test_losses_and_scores_of_the_whole_come_first_then_those_of_agents():
    assert by_information(ARENA) == [
        *("train/loss", "eval/accuracy", "train/accuracy", "eval/rounds"),
        *("eval/verifier/accuracy", "eval/verifier/reward", "eval/prover/reward"),
        *("train/grad_norm", "eval/bits/verifier", "eval/words/verifier"),
        *("train/verifier/reward_std", "pretraining/eval/prover/accuracy"),
    ]


def test_texts_come_before_the_most_informative_metrics():
    record: dict[str, object] = {"train/lr": 0.1, "train/loss": 0.0, "model": "models/final"}
    assert most_informative(record) == ["model", "train/loss", "train/lr"]
