"""Tests of language models on this machine."""
