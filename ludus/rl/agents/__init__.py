"""Agents: what acts and learns, one file each."""
