"""Adapters for models of other libraries."""
