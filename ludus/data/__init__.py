"""Batches in an order that can be taken up anywhere, and the data sets a config can name."""
