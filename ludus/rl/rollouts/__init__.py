"""Rollouts of on-policy agents: their rows, GAE estimates, and the KL divergence of their updates."""
