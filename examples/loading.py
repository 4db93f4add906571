"""Load what runs trained: a policy that predicts as Stable-Baselines3's does, and a network on other data."""

import torch

import ludus

quiet = {"settings.display": "none", "settings.loggers": []}

short = {"max_env_steps": 4_096, "evaluate_every_epochs": 0, "evaluation.target": None}
ludus.build_trainer(ludus.example("ppo").replace(**short, **quiet)).fit(name="pole")
policy = ludus.load("pole", "last", expected=ludus.Policy)
env = policy.make_env()
obs, _ = env.reset(seed=1)
total = 0.0
is_over = False
while not is_over:
    action, state = policy.predict(obs)
    obs, reward, terminated, truncated, _ = env.step(action)
    total, is_over = total + float(reward), terminated or truncated
print("the policy held the pole for", int(total), "steps")

brief = {"max_epochs": 4, "learning_rate_schedule.warmup_steps": 10}
trainer = ludus.Trainer(ludus.example("supervised").replace(**brief, **quiet))
trainer.fit(name="digits")
network = ludus.load("digits", "last", expected=torch.nn.Module)
noise = torch.utils.data.TensorDataset(torch.randn(32, 64), torch.randint(10, (32,)))
print("of noise the network is right as often as by chance:", trainer.evaluate(noise, model="last"))
print("and says", network(torch.zeros(1, 64)).argmax(1).item(), "of a black picture")
