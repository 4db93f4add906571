"""How agents are evaluated: whole episodes, here or in a process beside training, and what follows."""
