"""Sections of the report on arena runs, one per file."""
