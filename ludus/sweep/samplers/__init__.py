"""Samplers: how the points of a sweep are chosen."""
