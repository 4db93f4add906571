"""Updates: gradient steps on rows of rollouts, and what waits and is counted between them."""
