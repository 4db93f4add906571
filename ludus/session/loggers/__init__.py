"""Logger back ends, one per file, found by listing this folder."""
