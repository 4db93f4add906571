"""Active learning: a model that asks for the labels it needs, and is told when the world has moved on."""
