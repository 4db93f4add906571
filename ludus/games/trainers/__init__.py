"""The trainers of device games, one file per kind."""
