"""Tuning a language model on a file of examples."""
