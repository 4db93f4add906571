"""Run one measurement in a fresh process and print its result as one line of JSON.

The harness starts it as `python -m benchmarks._child MODULE FUNCTION ARGUMENTS`, ARGUMENTS being
the function's keyword arguments as JSON. The line holds `value`, or `left_out` with the reason.
"""

import contextlib
import importlib
import json
import sys


def main() -> None:
    """Call the named function and report what it returned, keeping stdout for that alone."""
    module, function, arguments = sys.argv[1:]
    with contextlib.redirect_stdout(sys.stderr):
        measurement = getattr(importlib.import_module(module), function)
        try:
            answer: dict[str, float | str] = {"value": measurement(**json.loads(arguments))}
        except NotImplementedError as missing:
            answer = {"left_out": str(missing)}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
