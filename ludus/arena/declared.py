"""What the arena adds to the words of the library."""

from ludus.config.rooms import declare

declare(
    "ludus.arena",
    categories={
        "protocol": "protocols",
        "scenario": "scenarios",
        "arena_agent": "agents/kinds",
        "body": "agents/bodies",
        "analyser": "analysers",
        "parallel_env": "parallel_envs",
    },
    lengths={"max_iterations": "iteration"},
    directions={"accuracy": "max"},
    needs={"torchrl": "ludus[arena]", "tensordict": "ludus[arena]", "pettingzoo": "ludus[arena]"},
    other_names={
        "num_iterations": ("max_iterations",),
        "lr": ("optimizer.learning_rate",),
        "lmbda": ("rl.gae_lambda",),
        "n_epochs": ("rl.num_epochs",),
        "batch_size": ("rl.minibatch_size",),
        "clip_range": ("ppo.loss.clip_epsilon",),
        "ent_coef": ("ppo.entropy_coef", "reinforce.entropy_coef", "spg.entropy_coef"),
    },
)
