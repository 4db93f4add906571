"""Solo agents: supervised training on the data, as a trainer kind and as pretraining."""
