"""The commands of the text family."""
