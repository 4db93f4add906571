"""A catalogue of hidden state: runs that keep something that no checkpoint holds, and how each is found."""
