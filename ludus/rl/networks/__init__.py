"""The network bodies that a config can name, one file each."""
