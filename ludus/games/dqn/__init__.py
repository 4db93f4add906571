"""Double DQN on device games: a host and an agent, each with its own network, learn in one loop."""
