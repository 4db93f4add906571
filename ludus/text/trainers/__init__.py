"""Trainers of text agents, a file each."""
