"""Tests of Tinker's API."""
