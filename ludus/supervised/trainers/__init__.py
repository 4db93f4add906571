"""The supervised trainers a config can name."""
