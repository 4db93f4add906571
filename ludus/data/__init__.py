"""Batches in an order that can be resumed anywhere, and the data sets a config can name."""
