"""From envs to the buffer: the sampler, step processors, and running normalisation."""
