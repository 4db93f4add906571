"""Scenarios, one per folder or file."""
