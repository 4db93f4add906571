"""Each folder, or file, is a scenario."""
