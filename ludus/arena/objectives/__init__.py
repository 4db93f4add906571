"""Losses of the arena: TorchRL's, for several agents of which not all have a turn."""
