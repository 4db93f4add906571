"""Supervised training: learn from labelled examples, validate, stop early, keep the best model."""
