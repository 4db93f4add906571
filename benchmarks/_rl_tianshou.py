"""Train each work of the RL benchmark with Tianshou."""

import gymnasium
import numpy as np
import torch
from tianshou.algorithm import DQN, PPO, SAC
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
from tianshou.algorithm.modelfree.sac import AutoAlpha, SACPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, ReplayBuffer, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.trainer import (
    OffPolicyTrainer,
    OffPolicyTrainerParams,
    OnPolicyTrainer,
    OnPolicyTrainerParams,
    Trainer,
)
from tianshou.utils.net.common import Net
from tianshou.utils.net.continuous import ContinuousActorProbabilistic, ContinuousCritic
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic

from benchmarks import _rl_work as shared
from benchmarks._rl_work import WORKS, Work, steps_per_second


def rate(work: str) -> float:
    """Return the env steps a second of the named work, one epoch of the trainer being timed."""
    todo = WORKS[work]
    torch.manual_seed(shared.SEED)
    np.random.seed(shared.SEED)
    trainer = {"dqn": _dqn, "ppo": _ppo, "sac": _sac}[todo.kind](todo)
    trainer.reset()

    def train(num_steps: int) -> None:
        trainer.params.epoch_num_steps = num_steps
        already = trainer._env_step
        trainer.execute_epoch()
        assert trainer._env_step - already == num_steps, trainer._env_step

    return steps_per_second(
        todo,
        lambda: train(todo.num_warm_steps - todo.num_random_steps),
        lambda: train(todo.num_timed_steps),
    )


def _make_envs(work: Work) -> DummyVectorEnv:
    envs = DummyVectorEnv([lambda: gymnasium.make(work.env_id) for _ in range(work.num_envs)])
    envs.seed(shared.SEED)
    return envs


def _make_buffer(work: Work, size: int) -> ReplayBuffer:
    return VectorReplayBuffer(size, work.num_envs) if work.num_envs > 1 else ReplayBuffer(size)


def _dqn(work: Work) -> Trainer:
    """Return the trainer of plain DQN, its buffer filled with random steps."""
    config = shared.DQN()
    envs = _make_envs(work)
    space = envs.action_space[0]
    network = Net(
        state_shape=envs.observation_space[0].shape,
        action_shape=space.n,
        hidden_sizes=config.hidden_sizes,
    )
    algorithm = DQN(
        policy=DiscreteQLearningPolicy(
            model=network, action_space=space, eps_training=config.epsilon
        ),
        optim=AdamOptimizerFactory(lr=config.learning_rate),
        gamma=shared.GAMMA,
        target_update_freq=config.updates_per_target_copy,
        is_double=False,
    )
    return _off_policy_trainer(
        work,
        Collector(algorithm, envs, _make_buffer(work, config.buffer_size)),
        algorithm,
        steps_per_round=max(work.num_envs, config.steps_per_update),
        updates_per_step=1 / config.steps_per_update,
        batch_size=config.batch_size,
    )


def _sac(work: Work) -> Trainer:
    """Return the trainer of SAC, its buffer filled with random steps."""
    config = shared.SAC()
    envs = _make_envs(work)
    obs_shape, space = envs.observation_space[0].shape, envs.action_space[0]
    adam = AdamOptimizerFactory(lr=config.learning_rate)

    def make_critic() -> ContinuousCritic:
        network = Net(
            state_shape=obs_shape,
            action_shape=space.shape,
            hidden_sizes=config.hidden_sizes,
            concat=True,
        )
        return ContinuousCritic(preprocess_net=network)

    actor = ContinuousActorProbabilistic(
        preprocess_net=Net(state_shape=obs_shape, hidden_sizes=config.hidden_sizes),
        action_shape=space.shape,
        unbounded=True,
        conditioned_sigma=True,
    )
    algorithm = SAC(
        policy=SACPolicy(actor=actor, action_space=space),
        policy_optim=adam,
        critic=make_critic(),
        critic_optim=adam,
        critic2=make_critic(),
        critic2_optim=adam,
        tau=config.tau,
        gamma=shared.GAMMA,
        alpha=AutoAlpha(-float(np.prod(space.shape)), 0.0, adam),
    )
    return _off_policy_trainer(
        work,
        Collector(algorithm, envs, _make_buffer(work, config.buffer_size)),
        algorithm,
        steps_per_round=1,
        updates_per_step=1.0,
        batch_size=config.batch_size,
    )


def _off_policy_trainer(
    work: Work,
    collector: Collector,
    algorithm: DQN | SAC,
    *,
    steps_per_round: int,
    updates_per_step: float,
    batch_size: int,
) -> Trainer:
    """Return a trainer without tests, logs or progress, after the random steps."""
    collector.reset()
    collector.collect(n_step=work.num_random_steps, random=True)
    return OffPolicyTrainer(
        algorithm,
        OffPolicyTrainerParams(
            training_collector=collector,
            collection_step_num_env_steps=steps_per_round,
            update_step_num_gradient_steps_per_sample=updates_per_step,
            batch_size=batch_size,
            show_progress=False,
            verbose=False,
        ),
    )


def _ppo(work: Work) -> Trainer:
    """Return the trainer of PPO."""
    config = shared.PPO()
    envs = _make_envs(work)
    obs_shape, space = envs.observation_space[0].shape, envs.action_space[0]
    num_steps = config.steps_per_env * work.num_envs

    def make_body() -> Net:
        return Net(
            state_shape=obs_shape, hidden_sizes=config.hidden_sizes, activation=torch.nn.Tanh
        )

    actor = DiscreteActor(preprocess_net=make_body(), action_shape=space.n, softmax_output=False)
    algorithm = PPO(
        policy=DiscreteActorPolicy(actor=actor, action_space=space),
        critic=DiscreteCritic(preprocess_net=make_body()),
        optim=AdamOptimizerFactory(lr=config.learning_rate),
        eps_clip=config.clip,
        vf_coef=config.value_weight,
        ent_coef=config.entropy_weight,
        max_grad_norm=config.max_grad_norm,
        gae_lambda=config.gae_lambda,
        gamma=shared.GAMMA,
        # How many steps its values are computed for at once: the whole of what was collected.
        max_batchsize=num_steps,
    )
    return OnPolicyTrainer(
        algorithm,
        OnPolicyTrainerParams(
            training_collector=Collector(algorithm, envs, _make_buffer(work, num_steps)),
            collection_step_num_env_steps=num_steps,
            update_step_num_repetitions=config.num_epochs,
            batch_size=num_steps // config.num_minibatches,
            show_progress=False,
            verbose=False,
        ),
    )
