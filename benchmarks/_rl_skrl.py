"""Train the PPO work of the RL benchmark with skrl."""

import gymnasium
from skrl.agents.torch.ppo import PPO
from skrl.envs.wrappers.torch import wrap_env
from skrl.memories.torch import RandomMemory
from skrl.models.torch import CategoricalMixin, DeterministicMixin, Model
from skrl.trainers.torch import SequentialTrainer
from skrl.utils import set_seed
from torch import Tensor, nn

from benchmarks import _rl_work as shared
from benchmarks._rl_work import WORKS, steps_per_second


class _Policy(CategoricalMixin, Model):
    """The actor, as skrl's documentation writes one."""

    def __init__(self, env: gymnasium.Env) -> None:
        Model.__init__(self, observation_space=env.observation_space, action_space=env.action_space)
        CategoricalMixin.__init__(self)
        self.network = _make_network(self.num_observations, self.num_actions)

    def compute(self, inputs: dict[str, Tensor], role: str) -> tuple[Tensor, dict[str, Tensor]]:
        return self.network(inputs["observations"]), {}


class _Value(DeterministicMixin, Model):
    """The critic, as skrl's documentation writes one."""

    def __init__(self, env: gymnasium.Env) -> None:
        Model.__init__(self, observation_space=env.observation_space, action_space=env.action_space)
        DeterministicMixin.__init__(self)
        self.network = _make_network(self.num_observations, 1)

    def compute(self, inputs: dict[str, Tensor], role: str) -> tuple[Tensor, dict[str, Tensor]]:
        return self.network(inputs["observations"]), {}


def rate(work: str) -> float:
    """Return the env steps a second of the named work."""
    todo, config = WORKS[work], shared.PPO()
    set_seed(shared.SEED)
    vector_env = gymnasium.make_vec(
        todo.env_id,
        num_envs=todo.num_envs,
        vectorization_mode="sync",
        # The default spends a step of its own on every reset, which would count as an env step.
        vector_kwargs={"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP},
    )
    env = wrap_env(vector_env, verbose=False)
    agent = PPO(
        models={"policy": _Policy(env), "value": _Value(env)},
        memory=RandomMemory(memory_size=config.steps_per_env, num_envs=todo.num_envs, device="cpu"),
        observation_space=env.observation_space,
        action_space=env.action_space,
        device="cpu",
        cfg={
            "rollouts": config.steps_per_env,
            "learning_epochs": config.num_epochs,
            "mini_batches": config.num_minibatches,
            "discount_factor": shared.GAMMA,
            "gae_lambda": config.gae_lambda,
            "learning_rate": config.learning_rate,
            "grad_norm_clip": config.max_grad_norm,
            "ratio_clip": config.clip,
            "value_clip": 0.0,
            "entropy_loss_scale": config.entropy_weight,
            "value_loss_scale": config.value_weight,
            "experiment": {"write_interval": 0, "checkpoint_interval": 0},
        },
    )
    # A trainer's steps are those of the vector env, and it keeps them in its configuration.
    trainer = SequentialTrainer(
        env=env,
        agents=agent,
        cfg={"headless": True, "disable_progressbar": True, "close_environment_at_exit": False},
    )

    def train(num_steps: int) -> None:
        trainer.cfg.timesteps = num_steps // todo.num_envs
        trainer.train()

    return steps_per_second(
        todo, lambda: train(todo.num_warm_steps), lambda: train(todo.num_timed_steps)
    )


def _make_network(num_inputs: int, num_outputs: int) -> nn.Sequential:
    first, second = shared.PPO().hidden_sizes
    return nn.Sequential(
        nn.Linear(num_inputs, first),
        nn.Tanh(),
        nn.Linear(first, second),
        nn.Tanh(),
        nn.Linear(second, num_outputs),
    )
