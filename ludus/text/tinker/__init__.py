"""The client of Tinker's API over plain HTTP with JSON; it needs no SDK."""
