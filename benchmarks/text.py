"""Text: sampling beside transformers, the server beside one batch, the client beside openai's.

`_text_sampling`: tokens a CPU-second in process. `_text_server`: those of `ludus serve` under 64 clients.
`_text_client`: an iteration of 512 requests against a server that answers after 50 ms, and CPU a request.
"""

from benchmarks import _text_client, _text_sampling, _text_server
from benchmarks._harness import Row, measure


def run(rounds: int) -> list[Row]:
    """Measure every part, turn by turn."""
    cases = [*_text_sampling.cases(), *_text_server.cases(), *_text_client.cases()]
    return measure(cases, rounds)
