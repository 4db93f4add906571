"""The trainers of device games, one file a kind."""
