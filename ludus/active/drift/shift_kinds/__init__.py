"""The kinds of distribution shift of a stream, one file each."""
