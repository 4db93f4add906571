"""Each file here is a kind, or a command, of its own."""
