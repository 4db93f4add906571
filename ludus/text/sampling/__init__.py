"""Sampling from a language model: continuous batching, the key-value cache, draws that depend on the request alone."""
