"""Analysers of rollouts, one per file."""
