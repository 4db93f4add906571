"""Bodies of agents, one kind per file."""
