"""Protocols: one per file, or a class of `_table.py`."""
