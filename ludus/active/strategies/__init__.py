"""How the examples that are asked for are chosen, a file a kind."""
