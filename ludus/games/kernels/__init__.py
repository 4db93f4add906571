"""Triton kernels for the GPU, each beside the plain PyTorch code that it must agree with."""
