"""Scenarios of text, a file each."""
