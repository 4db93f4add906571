"""Transcripts of episodes: who said what, as lines of JSON and as a page to read."""
