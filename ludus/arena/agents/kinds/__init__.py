"""Kinds of agents, one per file."""
