"""Model selection: evaluators, scores, best models, early stopping, the guard against divergence."""
