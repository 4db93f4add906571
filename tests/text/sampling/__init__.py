"""Tests of sampling."""
