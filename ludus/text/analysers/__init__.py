"""Analysers of text rollouts, a file each."""
