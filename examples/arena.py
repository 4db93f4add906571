"""Multi-agent PPO: a verifier learns with a prover, who is rewarded for being believed.

python examples/arena.py
"""

import ludus
from ludus.arena import VanillaPpoTrainer

AGENT = {
    "kind": "parts",
    "body": {"kind": "mlp", "widths": [32]},
    "shares_body_of": None,
    "policy_head": {"widths": [32]},
    "value_head": {"widths": [32]},
    "solo_head": {"widths": [32]},
    "learning_rate_factors": {"body": 1.0, "policy_head": 1.0, "value_head": 1.0, "solo_head": 1.0},
    "update_schedule": {"kind": "constant", "learns": True},
    "load": None,
}
SCENARIO = {
    "kind": "tiny",
    "num_bits": 4,
    "num_deciding": 2,
    "num_symbols": 2,
    "train_size": 256,
    "validation_size": 64,
    "test_size": 64,
}


def main() -> None:
    """Train a verifier and a prover on the parity of two bits, and print one of their episodes."""
    config = ludus.example(
        "vanilla_ppo",
        scenario=SCENARIO,
        agents={"verifier": AGENT, "prover": AGENT},
        pretraining=None,
        max_iterations=30,
        log_every_iterations=10,
        **{
            "rl.rollouts_per_iteration": 64,
            "rl.minibatch_size": 96,
            "evaluation.episodes": 64,
            "evaluate_every_iterations": 10,
            "settings.display": "none",
        },
    )
    trainer = VanillaPpoTrainer(config)
    result = trainer.fit(name="arena")
    print(f"best {result.best} after {result.counters['env_steps']} steps")
    for line in trainer.narrate(trainer.weights(), index=0):
        print(line)


if __name__ == "__main__":
    main()
