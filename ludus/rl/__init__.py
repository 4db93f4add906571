"""Reinforcement learning: envs, samplers, agents, evaluators and two trainers."""
