"""Triton kernels for the GPU, each next to the plain PyTorch code that it must agree with."""
