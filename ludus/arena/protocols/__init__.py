"""Each file is a protocol."""
