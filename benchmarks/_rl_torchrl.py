"""Train each work of the RL benchmark with TorchRL, put together as its own examples do it."""

from collections.abc import Callable, Iterator
from functools import partial

import gymnasium
import torch
from tensordict import TensorDictBase
from tensordict.nn import InteractionType, TensorDictModule, TensorDictSequential
from tensordict.nn.distributions import NormalParamExtractor
from torch import nn
from torchrl.collectors import Collector
from torchrl.data import (
    Composite,
    LazyTensorStorage,
    SamplerWithoutReplacement,
    TensorDictReplayBuffer,
)
from torchrl.envs import EnvBase, GymEnv, GymWrapper
from torchrl.envs.utils import ExplorationType
from torchrl.modules import (
    MLP,
    EGreedyModule,
    OneHotCategorical,
    ProbabilisticActor,
    QValueActor,
    TanhNormal,
    ValueOperator,
)
from torchrl.objectives import (
    ClipPPOLoss,
    DQNLoss,
    HardUpdate,
    SACLoss,
    SoftUpdate,
    group_optimizers,
)
from torchrl.objectives.value import GAE

from benchmarks import _rl_work as shared
from benchmarks._rl_work import WORKS, Work, steps_per_second

Trained = Iterator[int]
"""Collects and learns as long as it is asked to, and yields how many env steps it took."""


def rate(work: str, compile: bool = False, steps_per_batch: int = 0) -> float:  # noqa: A002
    """Return the env steps a second of the named work.

    With `compile` its update is compiled. The switch for that in its examples compiles the policy
    too, which is slower here. Its DQN collects many steps at once and then makes all their
    updates; with `steps_per_batch` it does so here.
    """
    todo = WORKS[work]
    torch.manual_seed(shared.SEED)
    if todo.kind == "dqn":
        batches = _dqn(todo, compile, steps_per_batch)
    else:
        batches = {"ppo": _ppo, "sac": _sac}[todo.kind](todo, compile)

    def train(num_steps: int) -> None:
        while num_steps > 0:
            num_steps -= next(batches)
        assert num_steps == 0, num_steps

    return steps_per_second(
        todo, lambda: train(todo.num_warm_steps), lambda: train(todo.num_timed_steps)
    )


def _make_env(work: Work) -> EnvBase:
    """Return the env, or several stepped in turn in this process."""
    if work.num_envs == 1:
        env = GymEnv(work.env_id, device="cpu")
    else:
        # Gymnasium's vector env is twice as fast here as TorchRL's own SerialEnv.
        vector_env = gymnasium.vector.SyncVectorEnv(
            [partial(gymnasium.make, work.env_id)] * work.num_envs,
            autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP,
        )
        env = GymWrapper(vector_env, device="cpu")
    env.set_seed(shared.SEED)
    return env


def _make_collector(
    env: EnvBase,
    policy: Callable[..., TensorDictBase],
    *,
    frames: int,
    num_random: int,
) -> Collector:
    """Return a collector in this process that never ends.

    Its policy has to be made of the parameters that are trained, so that nothing needs copying.
    """
    return Collector(
        env,
        policy,
        frames_per_batch=frames,
        total_frames=-1,
        init_random_frames=num_random,
        device="cpu",
        auto_register_policy_transforms=False,
    )


def _dqn(work: Work, compile: bool, steps_per_batch: int) -> Trained:  # noqa: A002
    """Collect the steps between two updates, then learn from the buffer."""
    config = shared.DQN()
    env = _make_env(work)
    spec = env.action_spec_unbatched
    network = MLP(
        in_features=env.observation_spec["observation"].shape[-1],
        out_features=spec.space.n,
        num_cells=list(config.hidden_sizes),
        activation_class=nn.ReLU,
    )
    actor = QValueActor(network, spec=Composite(action=spec), in_keys=["observation"])
    greedy = EGreedyModule(
        eps_init=config.epsilon, eps_end=config.epsilon, annealing_num_steps=1, spec=actor.spec
    )
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(config.buffer_size), batch_size=config.batch_size
    )
    loss_module = DQNLoss(actor, loss_function="l2", delay_value=True)
    loss_module.make_value_estimator(gamma=shared.GAMMA)
    target = HardUpdate(loss_module, value_network_update_interval=config.updates_per_target_copy)
    optimizer = torch.optim.Adam(loss_module.parameters(), lr=config.learning_rate)

    def update(batch: TensorDictBase) -> None:
        loss = loss_module(batch)["loss"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        target.step()

    learn = torch.compile(update) if compile else update
    frames = steps_per_batch or max(config.steps_per_update, work.num_envs)
    collector = _make_collector(
        env,
        TensorDictSequential(actor, greedy),
        frames=frames,
        num_random=work.num_random_steps,
    )
    num_collected = 0
    for collected in collector:
        data = collected.reshape(-1)
        buffer.extend(data)
        num_collected += data.numel()
        greedy.step(data.numel())
        if num_collected > work.num_random_steps:
            for _ in range(frames // config.steps_per_update):
                learn(buffer.sample())
        yield data.numel()


def _ppo(work: Work, compile: bool) -> Trained:  # noqa: A002
    """Collect, and learn for some epochs from what was collected."""
    config = shared.PPO()
    env = _make_env(work)
    actor, critic = _make_ppo(env, config)
    frames = config.steps_per_env * work.num_envs
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(frames),
        sampler=SamplerWithoutReplacement(),
        batch_size=frames // config.num_minibatches,
    )
    advantage = GAE(gamma=shared.GAMMA, lmbda=config.gae_lambda, value_network=critic)
    loss_module = ClipPPOLoss(
        actor,
        critic,
        clip_epsilon=config.clip,
        loss_critic_type="l2",
        entropy_coeff=config.entropy_weight,
        critic_coeff=config.value_weight,
        normalize_advantage=True,
    )
    parameters = list(loss_module.parameters())
    optimizer = torch.optim.Adam(parameters, lr=config.learning_rate)

    def update(batch: TensorDictBase) -> None:
        loss = loss_module(batch)
        total = loss["loss_objective"] + loss["loss_entropy"] + loss["loss_critic"]
        optimizer.zero_grad()
        total.backward()
        nn.utils.clip_grad_norm_(parameters, config.max_grad_norm)
        optimizer.step()

    learn = torch.compile(update) if compile else update
    collector = _make_collector(env, actor, frames=frames, num_random=0)
    for collected in collector:
        # Its examples compute the advantage again in every epoch; once is what all others do.
        with torch.no_grad():
            data = advantage(collected).reshape(-1)
        buffer.extend(data)
        for _ in range(config.num_epochs):
            for batch in buffer:
                learn(batch)
        yield data.numel()


def _make_ppo(env: EnvBase, config: shared.PPO) -> tuple[ProbabilisticActor, ValueOperator]:
    """Return the actor and the critic."""
    spec = env.action_spec_unbatched

    def make_network(num_outputs: int) -> MLP:
        return MLP(
            in_features=env.observation_spec["observation"].shape[-1],
            out_features=num_outputs,
            num_cells=list(config.hidden_sizes),
            activation_class=nn.Tanh,
        )

    actor = ProbabilisticActor(
        TensorDictModule(make_network(spec.space.n), in_keys=["observation"], out_keys=["logits"]),
        in_keys=["logits"],
        spec=Composite(action=spec),
        distribution_class=OneHotCategorical,
        return_log_prob=True,
        default_interaction_type=ExplorationType.RANDOM,
    )
    return actor, ValueOperator(make_network(1), in_keys=["observation"])


def _sac(work: Work, compile: bool) -> Trained:  # noqa: A002
    """Collect a step and learn from the buffer, with one optimizer step for all networks."""
    config = shared.SAC()
    env = _make_env(work)
    actor, loss_module = _make_sac(env, config)
    target = SoftUpdate(loss_module, tau=config.tau)
    optimizer = group_optimizers(
        *(
            torch.optim.Adam(parameters, lr=config.learning_rate)
            for parameters in (
                list(loss_module.actor_network_params.flatten_keys().values()),
                list(loss_module.qvalue_network_params.flatten_keys().values()),
                [loss_module.log_alpha],
            )
        )
    )
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(config.buffer_size), batch_size=config.batch_size
    )

    def update(batch: TensorDictBase) -> None:
        loss = loss_module(batch)
        (loss["loss_actor"] + loss["loss_qvalue"] + loss["loss_alpha"]).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        target.step()

    learn = torch.compile(update) if compile else update
    collector = _make_collector(env, actor, frames=1, num_random=work.num_random_steps)
    num_collected = 0
    for collected in collector:
        data = collected.reshape(-1)
        buffer.extend(data)
        num_collected += data.numel()
        if num_collected > work.num_random_steps:
            learn(buffer.sample())
        yield data.numel()


def _make_sac(env: EnvBase, config: shared.SAC) -> tuple[ProbabilisticActor, SACLoss]:
    """Return the actor, and the loss that trains it and two critics."""
    spec = env.action_spec_unbatched
    num_inputs, num_actions = env.observation_spec["observation"].shape[-1], spec.shape[-1]

    def make_network(num_inputs: int, num_outputs: int) -> MLP:
        return MLP(
            in_features=num_inputs,
            out_features=num_outputs,
            num_cells=list(config.hidden_sizes),
            activation_class=nn.ReLU,
        )

    body = nn.Sequential(make_network(num_inputs, 2 * num_actions), NormalParamExtractor())
    actor = ProbabilisticActor(
        TensorDictModule(body, in_keys=["observation"], out_keys=["loc", "scale"]),
        in_keys=["loc", "scale"],
        spec=spec,
        distribution_class=TanhNormal,
        distribution_kwargs={"low": spec.space.low, "high": spec.space.high, "tanh_loc": False},
        default_interaction_type=InteractionType.RANDOM,
        return_log_prob=False,
    )
    critic = ValueOperator(
        make_network(num_inputs + num_actions, 1), in_keys=["action", "observation"]
    )
    loss_module = SACLoss(actor, critic, num_qvalue_nets=2, delay_qvalue=True)
    loss_module.make_value_estimator(gamma=shared.GAMMA)
    return actor, loss_module
