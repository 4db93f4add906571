"""Updates: gradient steps on rows of rollouts, and the data and metrics held between them."""
