"""The client of providers: pace, retries, journal, cache, ledger."""
