"""Nested dictionaries of NumPy arrays, texts included, that share their first dimensions."""
