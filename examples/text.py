"""Expert iteration: a tiny language model learns by its own right answers whether a word has more a than b.

python examples/text.py
"""

import json
from pathlib import Path

import ludus

MODEL = {
    "kind": "byte_llama",
    "width": 64,
    "num_layers": 2,
    "num_heads": 4,
    "num_kv_heads": 4,
    "mlp_width": 128,
    "context": 64,
    "embedding_std": 0.02,
    "seed": 0,
}
VERIFIER = {
    "model": "tiny",
    "group": None,
    "frozen": False,
    "temperature": 1.0,
    "top_p": 1.0,
    "max_tokens": 8,
    "max_retries": 0,
}


def main() -> None:
    """Train a verifier alone, in this process, and print its accuracy and two of its episodes."""
    config = ludus.example(
        "pure_text_ei",
        protocol={
            "kind": "solo_verifier",
            "force_guess": None,
            "verifier_reward": 1.0,
            "verifier_incorrect_reward": 0.0,
            "verifier_terminated_reward": 0.0,
        },
        agents={"verifier": VERIFIER},
        max_iterations=4,
        provider={
            "kind": "in_process",
            "new_models": {"tiny": MODEL},
            "models": {},
            "max_rows": 512,
            "max_loaded_models": 4,
            "device": "cpu",
        },
        **{
            "scenario.num_letters": 7,
            "scenario.num_as": [1, 2, 5, 6],
            "scenario.num_seen": 7,  # all of them
            "rl.rollouts_per_iteration": 512,
            "pretraining.num_episodes": 6400,  # the form of an answer, not the solution
            "fine_tuning.learning_rate_multiplier": 3.0,
            "text_rl.test_scheme": "none",
            "settings.display": "none",
        },
    )
    result = ludus.build_trainer(config).fit(name="text")
    run = Path(str(result.run_dir))
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for number, record in enumerate(records[: config.max_iterations], 1):
        print(f"iteration {number}: accuracy {record['train/accuracy']:.2f}")
    for line in (run / "transcripts" / "train-3.jsonl").read_text().splitlines()[:16:8]:
        episode = json.loads(line)
        said = ", ".join(f"{turn['agent']}: {turn['text']}" for turn in episode["turns"])
        print(f"{episode['question'].splitlines()[-1]} -> {said} ({episode['outcome']})")


if __name__ == "__main__":
    main()
