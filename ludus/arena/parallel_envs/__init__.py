"""Each file is a kind of parallel env of PettingZoo: all agents act at once, in every step."""
