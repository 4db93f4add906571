"""Protocols, one per file."""
