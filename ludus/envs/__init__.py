"""Envs: their kinds and wrappers, stepped together here or in workers, and restored exactly."""
