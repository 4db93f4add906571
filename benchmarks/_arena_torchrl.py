"""Train the work of the arena's benchmark with TorchRL, put together as its multi-agent examples do it."""

import time

import torch
from tensordict import TensorDictBase
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, SamplerWithoutReplacement, TensorDictReplayBuffer
from torchrl.objectives import ClipPPOLoss, ValueEstimators
from torchrl.trainers import ReplayBufferTrainer, Trainer

from benchmarks._arena_work import TIMED, WARM, config_of
from ludus.arena.agents.combined import make_actor, make_critic
from ludus.arena.build import build_scenario_instance
from ludus.arena.torchrl_env import ArenaEnv

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
        use_shared_body=config.rl.use_shared_body,
    )
    symbols = 2 * max(config.scenario.sizes)
    env = ArenaEnv(instance.train_environment, symbols)
    actor, critic = make_actor(instance.agents), make_critic(instance.agents)
    frames, iterations = config.frames_per_batch, WARM + TIMED
    collector = Collector(
        env,
        actor,
        frames_per_batch=frames,
        total_frames=frames * (iterations + 1),
        device=device,
        no_cuda_sync=True,
    )
    times: list[float] = []

    def look(index: int) -> None:
        if index in (WARM, iterations):
            if device == "cuda":
                torch.cuda.synchronize()
            times.append(time.perf_counter())

    if only_rollouts:
        for index, _ in enumerate(collector):
            look(index)
    else:
        _trainer(config, actor, critic, collector, look).train()
    return TIMED * frames / (times[1] - times[0])


def _trainer(config, actor, critic, collector, look):  # type: ignore[no-untyped-def]
    rl, ppo = config.rl, config.ppo
    loss = ClipPPOLoss(
        actor,
        critic,
        clip_epsilon=ppo.loss.clip_epsilon,
        entropy_coeff=ppo.entropy_coef,
        critic_coeff=ppo.critic_coef,
        loss_critic_type=rl.loss_critic_type,
        normalize_advantage=ppo.normalise_advantage,
        normalize_advantage_exclude_dims=(-2,),
    )
    loss.set_keys(**KEYS)
    loss.make_value_estimator(ValueEstimators.GAE, gamma=rl.gamma, lmbda=rl.gae_lambda)
    frames = config.frames_per_batch
    trainer = Trainer(
        collector=collector,
        total_frames=frames * (WARM + TIMED + 1),
        frame_skip=1,
        optim_steps_per_batch=frames // rl.minibatch_size,
        num_epochs=rl.num_epochs,
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
        storage=LazyTensorStorage(frames, device=batch_device(config)),
        sampler=SamplerWithoutReplacement(),
        batch_size=rl.minibatch_size,
    )
    ReplayBufferTrainer(buffer, flatten_tensordicts=True).register(trainer)
    return trainer


def batch_device(config) -> str:  # type: ignore[no-untyped-def]
    """Return where the buffer's rows lie."""
    return str(config.settings.device)
