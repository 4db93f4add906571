"""Tests of the query strategies."""
