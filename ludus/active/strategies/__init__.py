"""The query strategies, one file each."""
