"""Train each work of the RL benchmark with Stable-Baselines3."""

from stable_baselines3 import DQN, PPO, SAC
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.env_util import make_vec_env

from benchmarks import _rl_work as shared
from benchmarks._rl_work import WORKS, Work, steps_per_second


def rate(work: str) -> float:
    """Return the env steps a second of the named work."""
    todo = WORKS[work]
    model = {"dqn": _dqn, "ppo": _ppo, "sac": _sac}[todo.kind](todo)

    def train(num_steps: int) -> None:
        already = model.num_timesteps
        model.learn(num_steps, log_interval=None, reset_num_timesteps=False)
        assert model.num_timesteps - already == num_steps, model.num_timesteps

    return steps_per_second(
        todo, lambda: train(todo.num_warm_steps), lambda: train(todo.num_timed_steps)
    )


def _dqn(work: Work) -> BaseAlgorithm:
    """Return plain DQN; a round of `train_freq` steps is taken by every env."""
    config = shared.DQN()
    steps_per_round = max(1, config.steps_per_update // work.num_envs)
    return DQN(
        "MlpPolicy",
        # The default of make_vec_env is a DummyVecEnv, whose envs are stepped in this process.
        make_vec_env(work.env_id, n_envs=work.num_envs, seed=shared.SEED),
        policy_kwargs={"net_arch": list(config.hidden_sizes)},
        learning_rate=config.learning_rate,
        buffer_size=config.buffer_size,
        learning_starts=work.num_random_steps,
        batch_size=config.batch_size,
        gamma=shared.GAMMA,
        train_freq=steps_per_round,
        gradient_steps=steps_per_round * work.num_envs // config.steps_per_update,
        target_update_interval=config.updates_per_target_copy * config.steps_per_update,
        exploration_initial_eps=config.epsilon,
        exploration_final_eps=config.epsilon,
        seed=shared.SEED,
        device="cpu",
    )


def _ppo(work: Work) -> BaseAlgorithm:
    """Return PPO, whose default networks are two of tanh."""
    config = shared.PPO()
    return PPO(
        "MlpPolicy",
        make_vec_env(work.env_id, n_envs=work.num_envs, seed=shared.SEED),
        policy_kwargs={"net_arch": list(config.hidden_sizes)},
        learning_rate=config.learning_rate,
        n_steps=config.steps_per_env,
        batch_size=config.steps_per_env * work.num_envs // config.num_minibatches,
        n_epochs=config.num_epochs,
        gamma=shared.GAMMA,
        gae_lambda=config.gae_lambda,
        clip_range=config.clip,
        ent_coef=config.entropy_weight,
        vf_coef=config.value_weight,
        max_grad_norm=config.max_grad_norm,
        seed=shared.SEED,
        device="cpu",
    )


def _sac(work: Work) -> BaseAlgorithm:
    """Return SAC, which learns its temperature by default."""
    config = shared.SAC()
    return SAC(
        "MlpPolicy",
        make_vec_env(work.env_id, n_envs=work.num_envs, seed=shared.SEED),
        policy_kwargs={"net_arch": list(config.hidden_sizes)},
        learning_rate=config.learning_rate,
        buffer_size=config.buffer_size,
        learning_starts=work.num_random_steps,
        batch_size=config.batch_size,
        tau=config.tau,
        gamma=shared.GAMMA,
        train_freq=1,
        gradient_steps=1,
        seed=shared.SEED,
        device="cpu",
    )
