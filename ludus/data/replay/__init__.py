"""Transitions and rollouts: rings, priorities, the packed rows that updates read."""
