"""Packages that tests load with --plugin, as a user would."""
