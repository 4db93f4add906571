"""How the classes of a stream change over time, a file a kind."""
