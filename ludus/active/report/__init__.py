"""The report's sections on active learning, one file each."""
