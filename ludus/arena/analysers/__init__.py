"""Analysers of rollouts, a file each."""
