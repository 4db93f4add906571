"""PPO on games that live on the device: the plain functions, and the kernels that agree with them."""
