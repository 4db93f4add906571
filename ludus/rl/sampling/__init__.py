"""From envs to a buffer: the sampler, transitions made of steps, and the moments that normalise them."""
