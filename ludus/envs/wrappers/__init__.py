"""The wrappers that a config can name: those of `_table.py`, and one in each other file."""
