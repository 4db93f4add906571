"""Open queries as files, examples as text, and a sitting in which a person answers them."""
