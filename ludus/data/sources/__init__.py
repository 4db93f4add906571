"""The data sets a config can name: one kind a file, found by listing this folder."""
