"""Losses and estimators as pure functions from tensors to tensors; they import nothing of ludus."""
