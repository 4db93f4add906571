"""Language models on this machine: tokenizers, networks, and the directory that holds them."""
