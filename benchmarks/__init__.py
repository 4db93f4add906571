"""Measure ludus against its peers: `python -m benchmarks NAME --json FILE [--rounds N]`.

Each module of this folder that does not start with an underscore is one benchmark, named by its
file, and offers `run(rounds: int) -> list[Row]`. A new benchmark is a new file.
"""
