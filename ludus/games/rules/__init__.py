"""The games a config can name, one file each."""
