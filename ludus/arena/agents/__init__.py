"""Agents of the arena: made of parts (body and heads), or whole; and all of them as one actor."""
