"""Seed pruners: end a trial early that does worse than the best one on the same seeds."""
