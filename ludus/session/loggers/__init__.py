"""Where metrics go: one back end a file, found by listing this folder."""
