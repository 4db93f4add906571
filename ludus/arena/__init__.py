"""Agents that meet under a protocol: they exchange messages about a datum, and one of them decides."""
