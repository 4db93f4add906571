"""Each file is a kind of agent."""
