"""Initialisation of agents: weights of earlier runs, and pretraining."""
