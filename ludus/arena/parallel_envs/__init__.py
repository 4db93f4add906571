"""Kinds of PettingZoo's parallel envs, one per file: all agents act simultaneously, in every step."""
