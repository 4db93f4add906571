"""The data sets a config can name: one kind per file, found by listing this folder."""
