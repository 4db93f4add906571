"""Train both roles of Hironaka's game by double DQN, evaluate them against scripted players, print a game.

A hundred rounds take seconds. ROUNDS = 4000, as in the shipped config, takes some minutes, and the host
then wins sooner than the scripted ones against the random and the choose-first agent.
"""

import ludus
from ludus.games import AnyPlayer, DQNTrainer, playoffs

ROUNDS = 100

config = ludus.example("fused_dqn", max_rounds=ROUNDS, log_every_rounds=ROUNDS // 2)
config = config.replace(**{"settings.display": "plain", "evaluation.episodes": 100})
trainer = DQNTrainer(config)
result = trainer.fit(name="hironaka", resume=True)
print(result.status, result.best, result.more_bests["agent"])

hosts: dict[str, AnyPlayer] = {
    "trained": trainer.players["host"],
    "random": {"kind": "random"},
    "all coordinates": {"kind": "all_coordinates"},
    "zeillinger": {"kind": "zeillinger", "lexicographic": False},
}
agents: dict[str, AnyPlayer] = {
    "trained": trainer.players["agent"],
    **{kind: {"kind": kind} for kind in ("random", "choose_first", "choose_last")},
    "morin": {"kind": "morin", "weights": [1.0, 1.0, 1.0]},
}
with trainer.inference_mode():
    table = playoffs(trainer.fused_game, hosts, agents, games=200, max_steps=50)
print("steps until the host wins (games that it won):")
print(table)
print("rho of the trained host against each agent:")
for agent in agents:
    print(f"  {agent:12}  {table.rhos['trained', agent]:.3f}")

for lines in trainer.narrate(trainer.weights(), index=0):
    print(lines)
