"""The same PPO on the same CartPole in JAX, as PureJaxRL does it: scans of scans in one jitted function.

Shapes: T steps, B games.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax

GAMMA, LAMBDA, CLIP = 0.99, 0.95, 0.2
PASSES, MINIBATCHES, MAX_STEPS = 4, 4, 500
Array = Any


def make_rounds(games: int, steps: int, rounds: int) -> Callable[[], None]:
    """Return a call that makes rounds of training and waits for them; compiled already."""
    optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(2e-3, eps=1e-5))
    keys = jax.random.split(jax.random.key(0), 4)
    params = {"policy": _network(keys[0], 2, 0.01), "value": _network(keys[1], 1, 1.0)}
    state = begin(keys[2], games), jnp.zeros(games, jnp.int32)
    carry = params, optimizer.init(params), state, keys[3]

    @jax.jit
    def all_rounds(carry: Any) -> Any:
        one = partial(_round, optimizer=optimizer, games=games, steps=steps)
        return jax.lax.scan(one, carry, None, length=rounds)

    held = [jax.block_until_ready(all_rounds(carry))[0]]

    def call() -> None:
        held[0] = jax.block_until_ready(all_rounds(held[0]))[0]

    return call


def begin(key: Array, games: int) -> Array:
    """Return (B, 4) new games."""
    return jax.random.uniform(key, (games, 4), minval=-0.05, maxval=0.05)


def _network(key: Array, outputs: int, gain: float) -> list[tuple[Array, Array]]:
    inputs, widths, gains = (4, 64, 64), (64, 64, outputs), (2**0.5, 2**0.5, gain)
    return [
        (jax.nn.initializers.orthogonal(g)(k, (m, n)), jnp.zeros(n))
        for k, g, m, n in zip(jax.random.split(key, 3), gains, inputs, widths, strict=True)
    ]


def _say(layers: list[tuple[Array, Array]], x: Array) -> Array:
    for weight, bias in layers[:-1]:
        x = jnp.tanh(x @ weight + bias)
    weight, bias = layers[-1]
    return x @ weight + bias


def _advance(numbers: Array, action: Array) -> tuple[Array, Array]:
    x, v, angle, spin = numbers.T
    sine, cosine = jnp.sin(angle), jnp.cos(angle)
    push = (jnp.where(action == 1, 10.0, -10.0) + 0.05 * spin * spin * sine) / 1.1
    turn = (9.8 * sine - cosine * push) / (0.5 * (4.0 / 3.0 - 0.1 * cosine * cosine / 1.1))
    pull = push - 0.05 * turn * cosine / 1.1
    after = jnp.stack([x + 0.02 * v, v + 0.02 * pull, angle + 0.02 * spin, spin + 0.02 * turn], 1)
    return after, (jnp.abs(after[:, 0]) > 2.4) | (jnp.abs(after[:, 2]) > 0.20943951)


def _round(carry: Any, _: None, *, optimizer: Any, games: int, steps: int) -> tuple[Any, None]:
    params, moments, state, key = carry

    def step(inner: Any, _: None) -> tuple[Any, Any]:
        (numbers, count), key = inner
        key, draw, fresh = jax.random.split(key, 3)
        logits, value = _say(params["policy"], numbers), _say(params["value"], numbers)[:, 0]
        action = jax.random.categorical(draw, logits)
        log_prob = jnp.take_along_axis(jax.nn.log_softmax(logits), action[:, None], 1)[:, 0]
        after, ended = _advance(numbers, action)
        over = ended | (count + 1 >= MAX_STEPS)
        row = numbers, action, log_prob, value, over
        numbers = jnp.where(over[:, None], begin(fresh, games), after)
        return ((numbers, jnp.where(over, 0, count + 1)), key), row

    (state, key), rows = jax.lax.scan(step, (state, key), None, length=steps)
    obs, action, log_prob, value, over = rows

    def back(later: Any, row: Any) -> Any:
        advantage, following = later
        value, over = row
        going = 1.0 - over
        advantage = 1.0 + GAMMA * following * going - value + GAMMA * LAMBDA * going * advantage
        return (advantage, value), advantage

    last = _say(params["value"], state[0])[:, 0]
    _, advantage = jax.lax.scan(back, (jnp.zeros(games), last), (value, over), reverse=True)
    columns = obs, action, log_prob, value, advantage
    flat = [column.reshape(games * steps, *column.shape[2:]) for column in columns]

    def passed(inner: Any, _: None) -> tuple[Any, None]:
        params, moments, key = inner
        key, own = jax.random.split(key)
        order = jax.random.permutation(own, games * steps)
        pieces = [c[order].reshape(MINIBATCHES, -1, *c.shape[1:]) for c in flat]
        (params, moments), _ = jax.lax.scan(
            partial(_update, optimizer=optimizer), (params, moments), pieces
        )
        return (params, moments, key), None

    (params, moments, key), _ = jax.lax.scan(passed, (params, moments, key), None, length=PASSES)
    return (params, moments, state, key), None


def _update(carry: Any, batch: Any, *, optimizer: Any) -> tuple[Any, None]:
    params, moments = carry

    def loss_fn(params: Any) -> Array:
        obs, action, old, old_value, advantage = batch
        log_probs = jax.nn.log_softmax(_say(params["policy"], obs))
        log_prob = jnp.take_along_axis(log_probs, action[:, None], 1)[:, 0]
        wanted = advantage + old_value
        scaled = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        ratio = jnp.exp(log_prob - old)
        gain = jnp.minimum(ratio * scaled, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * scaled)
        error = _say(params["value"], obs)[:, 0] - wanted
        return 0.25 * jnp.square(error).mean() - gain.mean()

    gradient = jax.grad(loss_fn)(params)
    change, moments = optimizer.update(gradient, moments, params)
    return (optax.apply_updates(params, change), moments), None
