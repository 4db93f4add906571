"""Evaluation of agents by whole episodes, in this process or asynchronously in another."""
