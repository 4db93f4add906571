"""Train host and agent of Hironaka's game for a moment, then watch them play one."""

import ludus
from ludus.games import DQNTrainer

config = ludus.example("fused_dqn", max_rounds=100, record_every_rounds=50)
config = config.replace(
    **{"settings.display": "plain", "evaluation.games": 100, "evaluation.max_steps": 20}
)
trainer = DQNTrainer(config)
result = trainer.fit(name="hironaka", resume=True)
print(result.status, result.best["score"], result.more_bests["agent"]["score"])
for lines in trainer.narrate(trainer.weights(), index=0):
    print(lines)
