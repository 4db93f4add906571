"""Sampling in process: tokens a CPU-second of ludus, and of transformers' generate on the same weights.

Byte-level Llamas with random weights; prompts of 24 random tokens, 32 new tokens at temperature 1, no end.
With n=8 eight rows share a prompt. Both are measured after a first call, over several, by the CPU-seconds of
the process, in one thread.
"""

import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks._harness import Case
from ludus.text.models.byte_tokenizer import ByteTokenizer
from ludus.text.models.language_model import load_model
from ludus.text.models.new_model import NewModelConfig, make_model
from ludus.text.sampling.engine import SamplingEngine
from ludus.text.sampling.request import SampleRequest

SIZES = {
    "99k": {"width": 64, "num_layers": 2, "mlp_width": 128},
    "887k": {"width": 128, "num_layers": 4, "mlp_width": 384},
}
"""What models differ in, by their number of parameters."""
NUM_ROWS = {"99k": 512, "887k": 256}
PROMPT_LENGTH, NUM_NEW = 24, 32
NUM_REPEATS = 5
UNIT = "tokens/CPU-s"


class EndlessTokenizer(ByteTokenizer):
    """Ends no sample, so that all systems sample the same number of tokens."""

    ends = ()


def cases() -> list[Case]:
    """Return ludus and transformers at each size, with 8 samples a prompt and with 1."""
    found = []
    for size, num_rows in NUM_ROWS.items():
        for n in (8, 1):
            for system in ("ludus", "transformers"):
                found.append(
                    Case(
                        work=f"sampling, {size} parameters, {num_rows} rows, n={n}",
                        system=system,
                        unit=UNIT,
                        role="ludus" if system == "ludus" else "peer",
                        module=__name__,
                        function=f"measure_{system}",
                        arguments={"size": size, "num_rows": num_rows, "n": n},
                        requires=() if system == "ludus" else ("transformers",),
                        is_larger_better=True,
                    )
                )
    return found


def measure_ludus(size: str, num_rows: int, n: int) -> float:
    """Return the tokens a CPU-second of the sampling engine."""
    with tempfile.TemporaryDirectory() as folder:
        return _rate(ludus_sampler(Path(folder), size, num_rows, n), num_rows)


def measure_transformers(size: str, num_rows: int, n: int) -> float:
    """Return the tokens a CPU-second of transformers' generate."""
    with tempfile.TemporaryDirectory() as folder:
        return _rate(transformers_sampler(Path(folder), size, num_rows, n), num_rows)


def measure_side_by_side(size: str, num_rows: int, n: int, rounds: int) -> dict[str, list[float]]:
    """Return the tokens a CPU-second of both, call by call in turn in this process."""
    with tempfile.TemporaryDirectory() as folder:
        samplers = {
            "ludus": ludus_sampler(Path(folder) / "ludus", size, num_rows, n),
            "transformers": transformers_sampler(Path(folder) / "other", size, num_rows, n),
        }
        found: dict[str, list[float]] = {name: [] for name in samplers}
        for sample in samplers.values():
            sample()
        for _ in range(rounds):
            for name, sample in samplers.items():
                found[name].append(_timed(sample, num_rows))
    return found


def ludus_sampler(folder: Path, size: str, num_rows: int, n: int) -> Callable[[], int]:
    """Return a function that samples once and returns the number of tokens."""
    torch.set_num_threads(1)
    model = load_model(_made(folder, size), name=size)
    model.tokenizer = EndlessTokenizer()
    engine = SamplingEngine(model, max_rows=num_rows)
    requests = [
        SampleRequest(prompt, n, seed, NUM_NEW)
        for seed, prompt in enumerate(_prompts(num_rows // n))
    ]

    def sample() -> int:
        return sum(len(one.tokens) for samples in engine.sample(requests) for one in samples)

    return sample


def transformers_sampler(folder: Path, size: str, num_rows: int, n: int) -> Callable[[], int]:
    """Return a function that samples once and returns the number of tokens."""
    import transformers

    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    network = transformers.AutoModelForCausalLM.from_pretrained(_made(folder, size))
    prompts = torch.tensor(_prompts(num_rows // n))
    options = transformers.GenerationConfig(
        do_sample=True, top_k=0, max_new_tokens=NUM_NEW, num_return_sequences=n, pad_token_id=0
    )
    mask = torch.ones_like(prompts)

    def sample() -> int:
        with torch.inference_mode():
            found = network.generate(prompts, attention_mask=mask, generation_config=options)
        return int(found[:, PROMPT_LENGTH:].numel())

    return sample


def _rate(sample: Callable[[], int], num_rows: int) -> float:
    sample()
    return statistics.median(_timed(sample, num_rows) for _ in range(NUM_REPEATS))


def _timed(sample: Callable[[], int], num_rows: int) -> float:
    start = time.process_time()
    num_tokens = sample()
    seconds = time.process_time() - start
    assert num_tokens == num_rows * NUM_NEW, "all systems must sample as many tokens"
    return num_tokens / seconds


def _made(folder: Path, size: str) -> Path:
    config = NewModelConfig(
        kind="byte_llama", num_heads=4, num_kv_heads=4, context=256, seed=0, embedding_std=0.02,
        **SIZES[size],
    )  # fmt: skip
    make_model(config, folder / size)
    return folder / size


def _prompts(count: int) -> list[tuple[int, ...]]:
    drawn = random.Random(0)
    return [tuple(drawn.choices(range(256), k=PROMPT_LENGTH)) for _ in range(count)]
