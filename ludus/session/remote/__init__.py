"""Logging to services: each record of a run reaches a service once, in the background."""
