"""Teach a model to answer `a` or `b` by rewards alone: a plain script of the tinker SDK, run unchanged.

TINKER_BASE_URL=http://127.0.0.1:8000 TINKER_API_KEY=tml-... python cookbook.py
"""

import os

import tinker
from tinker import types

NUM_STEPS = int(os.environ.get("NUM_STEPS", "12"))
GROUP = 64
QUESTIONS = {"first?": "a", "last??": "b"}


def datum(prompt: list[int], sample: types.SampledSequence, advantage: float) -> types.Datum:
    tokens = prompt + list(sample.tokens)
    before = [0.0] * (len(prompt) - 1)
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={
            "target_tokens": tokens[1:],
            "logprobs": before + list(sample.logprobs),
            "advantages": before + [advantage] * len(sample.tokens),
        },
    )


def main() -> list[float]:
    service = tinker.ServiceClient()
    training = service.create_lora_training_client(base_model="tiny", rank=16, seed=1).result()
    prompts = {text: list(text.encode()) for text in QUESTIONS}

    # The format first, and a hint: after a question comes one letter, the right one somewhat more often.
    examples = [
        types.Datum(
            model_input=types.ModelInput.from_ints(prompt),
            loss_fn_inputs={
                "target_tokens": [*prompt[1:], ord(letter)],
                "weights": [0.0] * (len(prompt) - 1) + [0.75 if letter == right else 0.25],
            },
        )
        for prompt, right in zip(prompts.values(), QUESTIONS.values(), strict=True)
        for letter in "ab"
    ]
    adam = types.AdamParams(learning_rate=0.01)
    for _ in range(60):
        forward = training.forward_backward(examples, "cross_entropy")
        step = training.optim_step(adam)
        forward.result()
        step.result()

    rewards = []
    params = types.SamplingParams(max_tokens=1, temperature=1.0)
    for _ in range(NUM_STEPS):
        sampler = training.save_weights_and_get_sampling_client().result()
        asked = {
            text: sampler.sample(types.ModelInput.from_ints(prompt), GROUP, params)
            for text, prompt in prompts.items()
        }
        data, total = [], 0.0
        for text, future in asked.items():
            samples = future.result().sequences
            scores = [float(one.tokens == [ord(QUESTIONS[text])]) for one in samples]
            mean = sum(scores) / len(scores)
            total += sum(scores)
            data += [
                datum(prompts[text], one, score - mean)
                for one, score in zip(samples, scores, strict=True)
            ]
        rewards.append(total / (GROUP * len(prompts)))
        forward = training.forward_backward(data, "importance_sampling")
        step = training.optim_step(types.AdamParams(learning_rate=0.003))
        forward.result()
        step.result()
    service.close("success").result()
    return rewards


if __name__ == "__main__":
    print(main())
