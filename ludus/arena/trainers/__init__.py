"""Each file is a trainer kind."""
