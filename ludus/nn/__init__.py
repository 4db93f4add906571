"""Networks, the Model that wraps one, flat parameters, optimizers and schedules."""
