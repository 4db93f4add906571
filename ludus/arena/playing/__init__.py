"""Episodes: the data they are about, environments that step them, and rollouts of agents in them."""
