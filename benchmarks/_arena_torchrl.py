"""Train the work of the arena's benchmark with TorchRL, put together as its multi-agent examples do it."""

import time
from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDictBase
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, SamplerWithoutReplacement, TensorDictReplayBuffer
from torchrl.objectives import ClipPPOLoss, ValueEstimators
from torchrl.trainers import ReplayBufferTrainer, Trainer

from benchmarks._arena_work import WARM, config_of, timed_of
from ludus.arena.agents.combined import make_actor, make_critic
from ludus.arena.build import build_scenario_instance
from ludus.arena.playing.torchrl_env import ArenaEnv
from ludus.arena.scenario import ScenarioInstance

KEYS = {
    "action": ("agents", "action"),
    "sample_log_prob": ("agents", "action_log_prob"),
    "value": ("agents", "value"),
    "reward": ("agents", "reward"),
    "done": ("agents", "done"),
    "terminated": ("agents", "terminated"),
    "advantage": ("agents", "advantage"),
    "value_target": ("agents", "value_target"),
}


def rate(num_envs: int, device: str, only_rollouts: bool) -> float:
    """Return the frames a second."""
    torch.set_num_threads(1)
    config = config_of(num_envs, device)
    torch.manual_seed(config.seed)
    instance = build_scenario_instance(
        config,
        device=torch.device(device),
        trainer_type="rl",
        num_envs=num_envs,
        num_judged=1,
        use_shared_body=config.rl.shared_body,
    )
    times: list[float] = []
    timed = timed_of(num_envs)

    def look(index: int) -> None:
        if index in (WARM, WARM + timed):
            if device == "cuda":
                torch.cuda.synchronize()
            times.append(time.perf_counter())

    trainer = make_trainer(config, instance, WARM + timed, look)
    if only_rollouts:
        for index, _ in enumerate(trainer.collector):
            look(index)
    else:
        trainer.train()
    return timed * config.frames_per_batch / (times[1] - times[0])


def make_trainer(
    config: Any, instance: ScenarioInstance, iterations: int, look: Callable[[int], None]
) -> Trainer:
    """Return TorchRL's trainer of this experiment; `look` is called after so many iterations' updates."""
    env = ArenaEnv(instance.train_environment, 2 * max(config.scenario.sizes))
    actor, critic = make_actor(instance.agents), make_critic(instance.agents)
    frames, device = config.frames_per_batch, config.settings.device
    # One more than is learned from: looking comes when the episodes after an iteration are there.
    total = frames * (iterations + 1)
    collector = Collector(
        env, actor, frames_per_batch=frames, total_frames=total, device=device, no_cuda_sync=True
    )
    loss = _loss(config, actor, critic)
    trainer = Trainer(
        collector=collector,
        total_frames=total,
        frame_skip=1,
        optim_steps_per_batch=frames // config.rl.minibatch_size,
        num_epochs=config.rl.num_epochs,
        loss_module=loss,
        optimizer=torch.optim.Adam(
            loss.parameters(), lr=config.optimizer.learning_rate, fused=True
        ),
        clip_norm=config.max_grad_norm,
        progress_bar=False,
        seed=config.seed,
    )
    seen = [0]

    def prepared(batch: TensorDictBase) -> TensorDictBase:
        look(seen[0])
        seen[0] += 1
        shape = batch["next", "agents", "reward"].shape
        for name in ("done", "terminated"):
            batch["next", "agents", name] = batch["next", name].unsqueeze(-1).expand(shape)
        with torch.no_grad():
            return loss.value_estimator(batch)

    trainer.register_op("batch_process", prepared)
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(frames, device=device),
        sampler=SamplerWithoutReplacement(),
        batch_size=config.rl.minibatch_size,
    )
    ReplayBufferTrainer(buffer, flatten_tensordicts=True).register(trainer)
    return trainer


def _loss(config: Any, actor: torch.nn.Module, critic: torch.nn.Module) -> ClipPPOLoss:
    rl, ppo = config.rl, config.ppo
    loss = ClipPPOLoss(
        actor,
        critic,
        clip_epsilon=ppo.loss.clip,
        entropy_coeff=ppo.entropy_coef,
        critic_coeff=ppo.value_coef,
        loss_critic_type=rl.loss_critic_type,
        normalize_advantage=ppo.normalise_advantage,
        normalize_advantage_exclude_dims=(-2,),
    )
    loss.set_keys(**KEYS)
    loss.make_value_estimator(ValueEstimators.GAE, gamma=rl.gamma, lmbda=rl.gae_lambda)
    return loss
