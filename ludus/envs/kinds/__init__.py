"""The kinds of env that a config can name, one file each."""
