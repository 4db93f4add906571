"""What is better: evaluators, best models, patience, the guard against divergence."""
