"""The report's sections on a sweep or a population."""
