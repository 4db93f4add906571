"""Batches in an order that can be taken up anywhere."""
