"""PPO on device games: the Triton kernels, which agree with the plain functions."""
