"""Break ludus on purpose, one line at a time, and see whether a test notices. Not part of `make test`."""
