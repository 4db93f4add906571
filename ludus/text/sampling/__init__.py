"""Sampling from a language model: continuous batching, and draws that depend on the request alone."""
