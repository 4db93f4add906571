"""Agents alone with the data: supervised training, as a trainer kind and as pretraining."""
