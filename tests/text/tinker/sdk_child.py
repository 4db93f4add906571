"""A process with the tinker SDK, which leaves connections open: it does what it is asked, a line each.

Each line of stdin is JSON, [scenario, arguments...], and each line of stdout its result.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

import tinker
from tinker import types

from tests.text.tinker import cookbook

ADAM = types.AdamParams(learning_rate=0.01)
SCENARIOS: dict[str, Callable[..., Any]] = {"cookbook": cookbook.main}
KEPT: dict[str, Any] = {}


def scenario(function: Callable[..., Any]) -> Callable[..., Any]:
    SCENARIOS[function.__name__] = function
    return function


def service() -> tinker.ServiceClient:
    if "service" not in KEPT:
        KEPT["service"] = tinker.ServiceClient()
    return KEPT["service"]


def make(**options: object) -> tinker.TrainingClient:
    whole = {"base_model": "tiny", "rank": 4, "seed": 1, **options}
    return service().create_lora_training_client(**whole).result()


def training() -> tinker.TrainingClient:
    if "training" not in KEPT:
        KEPT["training"] = make()
    return KEPT["training"]


def datum(text: str, **inputs: list[float]) -> types.Datum:
    tokens = list(text.encode())
    own = inputs or {"weights": [1.0] * (len(tokens) - 1)}
    return of_tokens(tokens[:-1], tokens[1:], **own)


def of_tokens(tokens: list[int], targets: list[int], **inputs: list[float]) -> types.Datum:
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens),
        loss_fn_inputs={"target_tokens": targets, **inputs},
    )


def logprobs(client: tinker.TrainingClient, text: str) -> list[float]:
    output = client.forward([datum(text)], "cross_entropy").result()
    return list(output.loss_fn_outputs[0]["logprobs"].data)


@scenario
def chunked(size: int) -> list[float]:
    """Return loss, norm and the log-probabilities after a step on a batch sent in chunks."""
    client = make()
    config = client.holder._client_config
    client.holder._client_config = config.model_copy(update={"fwdbwd_max_chunk_len": size})
    batch = [datum("one"), datum("seven"), datum("six")]
    output = client.forward_backward(batch, "cross_entropy")
    step = client.optim_step(ADAM)
    loss, norm = output.result().metrics["loss:sum"], step.result().metrics["grad_norm"]
    client.holder._client_config = config
    return [loss, norm, *logprobs(client, "seven")]


@scenario
def sampled_twice() -> dict[str, Any]:
    """Sample twice with one seed; score the samples as training does."""
    sampler = training().save_weights_and_get_sampling_client().result()
    prompt, params = list(b"ab"), types.SamplingParams(max_tokens=5, seed=3)
    given = types.ModelInput.from_ints(prompt)
    answer = sampler.sample(given, 2, params, include_prompt_logprobs=True).result()
    again = sampler.sample(given, 2, params).result()
    trained = []
    for one in answer.sequences:
        whole = prompt + list(one.tokens)
        scored = of_tokens(whole[:-1], whole[1:])
        output = training().forward([scored], "cross_entropy").result()
        trained.append(list(output.loss_fn_outputs[0]["logprobs"].data))
    return {
        "tokens": [list(one.tokens) for one in answer.sequences],
        "again": [list(one.tokens) for one in again.sequences],
        "sampled": [[*answer.prompt_logprobs[1:], *one.logprobs] for one in answer.sequences],
        "scored": sampler.compute_logprobs(given).result(),
        "trained": trained,
    }


@scenario
def saved_and_loaded() -> dict[str, Any]:
    """Train on after a save: in the same run, in one loaded with its optimizer, and in one without."""
    first = make()
    first.forward_backward([datum("hello")], "cross_entropy").result()
    first.optim_step(ADAM).result()
    path = first.save_state("half").result().path
    second = service().create_training_client_from_state_with_optimizer(path).result()
    third = service().create_training_client_from_state(path).result()
    found = []
    for client in (first, second, third):
        client.forward_backward([datum("there")], "cross_entropy").result()
        client.optim_step(ADAM).result()
        found.append(logprobs(client, "hello"))
    named = first.save_weights_for_sampler("named").result().path
    base = service().create_sampling_client(model_path=named).get_base_model()
    return {"after": found, "rank": second.get_info().lora_rank, "base": base}


@scenario
def custom_loss() -> list[float]:
    """Train by a loss of the script; return it, and the sum of log-probabilities before and after."""

    def loss(data: list[types.Datum], outputs: list[Any]) -> tuple[Any, dict[str, float]]:
        total = -sum(one.sum() for one in outputs)
        return total, {"mine": float(total)}

    before = sum(logprobs(training(), "hello"))
    metrics = training().forward_backward_custom([datum("hello")], loss).result().metrics
    training().optim_step(ADAM).result()
    return [metrics["mine"], before, sum(logprobs(training(), "hello"))]


@scenario
def tokenizer() -> str:
    return training().get_info().model_data.tokenizer_id


@scenario
def wrong_batch(loss: str, tokens: list[int], targets: list[int], inputs: dict[str, Any]) -> Any:
    """Return the errors of a batch and of the step after it; the run must go on."""
    floats = {name: [float(one) for one in values] for name, values in inputs.items()}
    failed = training().forward_backward([of_tokens(tokens, targets, **floats)], loss)
    step = training().optim_step(ADAM)
    found = [error_of(failed.result), error_of(step.result)]
    assert logprobs(training(), "hello")
    return found


def error_of(deed: Callable[[], Any]) -> list[str]:
    try:
        deed()
    except tinker.TinkerError as error:
        return [type(error).__name__, str(error), str(getattr(error, "category", ""))]
    return ["nothing", "", ""]


@scenario
def wrong_names() -> list[list[str]]:
    stranger = tinker.ServiceClient(api_key="tml-someone-else")
    sampler = service().create_sampling_client(base_model="tiny")
    long, short = types.ModelInput.from_ints([1] * 60), types.ModelInput.from_ints([1])
    one, few = types.SamplingParams(max_tokens=1), types.SamplingParams(max_tokens=1, top_k=3)
    return [
        error_of(lambda: stranger.create_lora_training_client(base_model="tiny").result()),
        error_of(lambda: make(base_model="huge")),
        error_of(
            lambda: service().create_training_client_from_state("tinker://x/weights/y").result()
        ),
        error_of(lambda: sampler.sample(long, 1, one).result()),
        error_of(lambda: sampler.sample(short, 1, few).result()),
    ]


@scenario
def begin_steps() -> None:
    """Send three steps without waiting for more than the first."""
    KEPT["client"] = client = make()
    KEPT["waiting"] = waiting = []
    for text in ("hello", "there", "again"):
        waiting.append(client.forward_backward([datum(text)], "cross_entropy"))
        waiting.append(client.optim_step(ADAM))
    waiting[1].result()


@scenario
def end_steps() -> list[float]:
    """Wait for them, and return how the model is then."""
    for future in KEPT["waiting"]:
        future.result()
    return logprobs(KEPT["client"], "hello")


def main() -> None:
    # What the SDK prints must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        answers.write(json.dumps(SCENARIOS[name](*arguments)) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
