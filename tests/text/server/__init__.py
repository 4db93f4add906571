"""The local server."""
