"""Batches in an order that can be resumed anywhere."""
