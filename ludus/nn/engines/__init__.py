"""Engines, which execute a gradient step as it is written: eager, tape, CUDA graph or compiled."""
