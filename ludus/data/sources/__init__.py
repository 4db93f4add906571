"""The data sets that a config can name: one per file, or several in `_table.py`, found by listing."""
