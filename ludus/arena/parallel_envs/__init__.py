"""Kinds of PettingZoo's parallel envs: all agents act simultaneously, in every step."""
