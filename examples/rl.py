"""Train a PPO agent on CartPole, then print the greedy action of its policy."""

import ludus

config = ludus.example("ppo", seed=1, max_env_steps=30_000)
config = config.replace(**{"settings.display": "plain"})
trainer = ludus.RLTrainer(config)
result = trainer.fit(name="pole", resume=True)
print(result.status, result.reason, result.best)

obs = trainer.env.obs
print("the agent would now push", "right" if trainer.agent.act_greedy(obs, None)[0] else "left")
