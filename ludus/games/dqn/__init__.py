"""Double DQN on games that live on the device: a host and an agent, a network each, learn in one loop."""
