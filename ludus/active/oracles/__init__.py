"""The oracles: known labels, a function, a person."""
