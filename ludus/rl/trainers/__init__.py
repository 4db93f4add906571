"""The trainer kinds of this family, one file each."""
