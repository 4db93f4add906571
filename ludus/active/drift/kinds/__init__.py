"""What a state can be estimated by, a file a kind."""
