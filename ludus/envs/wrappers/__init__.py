"""The wrappers that a config can name, one file each."""
