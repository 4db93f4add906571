"""The active trainers a config can name."""
