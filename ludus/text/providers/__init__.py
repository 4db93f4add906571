"""Providers, a file each."""
