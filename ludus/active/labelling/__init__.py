"""Labelling by people: open queries as files, examples as text, and the labelling session."""
