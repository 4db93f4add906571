"""PPO iterations on the GPU in Triton kernels, captured as one CUDA graph.

    iteration   rollout, values, advantages, statistics
                for each update: gradient, reduce, Adam
                finish

The kernels work in place on the vectors of a Learner and on the tensors of a Live, so checkpoints, evaluation
and export see what they made. All of it is deterministic to the bit: no atomic operation is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from ludus.games.elementwise import ElementwiseGame
from ludus.games.kernels.inline import inlined
from ludus.games.kernels.ppo.estimate_kernels import (
    advantages_kernel,
    statistics_kernel,
    sums_kernel,
    values_kernel,
)
from ludus.games.kernels.ppo.gradient_kernel import METRICS, gradient_kernel
from ludus.games.kernels.ppo.iteration import Live, PpoNumbers
from ludus.games.kernels.ppo.layout import layout_of
from ludus.games.kernels.ppo.rollout_kernel import rollout_kernel
from ludus.games.kernels.ppo.step_kernels import adam_kernel, finish_kernel, reduce_kernel
from ludus.games.kernels.ppo.tuning import Tuning, tuning_for
from ludus.games.kernels.triton_path import power_of_two
from ludus.games.ppo.actor_critic import ActorCritic
from ludus.games.ppo.counter_random import Keys
from ludus.games.ppo.shuffle import ROUNDS, half
from ludus.nn.learner import Learner
from ludus.nn.optimizer import Adam

Rates = Callable[[int], float]

MAX_RATES = 512
"""The approximate number of updates whose learning rates are sent to the device at a time."""
PROGRAMS = 132
"""The number of programs that run in parallel."""
SUM_ROWS = 256
"""Rows that a program of the sums takes at a time."""


class Totals(NamedTuple):
    """The accumulated results of iterations."""

    metrics: Tensor
    """(7,) the sum over all updates of each of `learn.METRICS`."""
    num_episodes: Tensor
    sum_returns: Tensor
    sum_lengths: Tensor


class PpoKernels:
    """Iterates PPO on the device of a Learner."""

    def __init__(
        self,
        game: ElementwiseGame,
        learner: Learner,
        live: Live,
        keys: Keys,
        numbers: PpoNumbers,
        *,
        tuning: Tuning | None = None,
    ) -> None:
        self.numbers, self.live, self.learner = numbers, live, learner
        self._tuning = tuning_for(numbers) if tuning is None else tuning
        self._device = learner.flat.device
        network = learner.module
        assert isinstance(network, ActorCritic)
        self._layout = layout_of(learner, network)
        self._functions = [inlined(f) for f in (game.begin, game.features, game.advance)]
        self._game = game
        words = torch.tensor(keys, dtype=torch.int64).flatten()
        self._keys = words.to(self._device)
        self._make_memory()
        self._graph: torch.cuda.CUDAGraph | None = None

    def _make_memory(self) -> None:
        numbers, layout, tuning = self.numbers, self._layout, self._tuning
        rows, games = numbers.num_rows, numbers.num_games
        self._size = rows // numbers.num_minibatches
        self._num_blocks = triton.cdiv(self._size, tuning.rows)
        self._programs = min(self._num_blocks, tuning.programs)
        self._programs_padded = power_of_two(self._programs)
        self._num_pieces = triton.cdiv(layout.width, tuning.pieces)
        self._steps_padded = power_of_two(numbers.rollout_steps)
        self._scan_games = max(1, min(power_of_two(games), 512 // self._steps_padded))
        self._rollout_programs = triton.cdiv(games, tuning.games)
        self._sum_programs = min(triton.cdiv(rows, SUM_ROWS), PROGRAMS)
        self._num_constants = power_of_two(2 * ROUNDS * numbers.num_epochs)

        def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=self._device)

        self._records = zeros(rows + games, layout.record)
        self._values, self._final_values = zeros(rows + games), zeros(rows)
        self._finals = zeros(rows, layout.inputs)
        self._episodes = zeros(self._rollout_programs, 3)
        self._table = zeros(2 * self._num_constants, dtype=torch.int32)
        self._sums = zeros(self._sum_programs, 2 * numbers.num_updates)
        self._statistics = zeros(numbers.num_updates, 2)
        self._partials = zeros(self._programs, layout.width)
        self._gradient = zeros(layout.width)
        self._squares = zeros(self._num_pieces)
        self._progress = zeros(numbers.num_updates + 1)
        self._metrics = zeros(numbers.num_updates, METRICS.value)
        self._turns = max(1, MAX_RATES // numbers.num_updates)
        self._schedule = zeros(self._turns * numbers.num_updates, 2)
        self._turn = zeros(1, dtype=torch.int64)
        self.totals = zeros(METRICS.value + 3)
        config = self.learner.optimizer.config
        assert isinstance(config, Adam)
        self._config = config
        betas = [math.log(beta) if beta else -math.inf for beta in (config.beta1, config.beta2)]
        self._log_betas = torch.tensor(betas, dtype=torch.float64, device=self._device)

    def make_ready(self) -> None:
        """Compile the kernels and capture an iteration, without side effects."""
        if self._device.type == "cuda":
            self._captured()

    def iterate(self, count: int, *, learning_rate: Rates, clip: Rates) -> None:
        """Run iterations; does not wait for them.

        Learning rate and clip are functions of the number of the update, from 0 for the first of this call.
        """
        updates = self.numbers.num_updates
        once = self._captured().replay if self._device.type == "cuda" else self._iterate_once
        for start in range(0, count, self._turns):
            turns = range(start, min(start + self._turns, count))
            numbers = range(turns.start * updates, turns.stop * updates)
            rates = torch.tensor([(learning_rate(number), clip(number)) for number in numbers])
            self._schedule[: len(rates)].copy_(rates, non_blocking=True)
            self._turn.zero_()
            # A state loaded in between may have set the number of steps.
            self._progress[0].copy_(self.learner.optimizer.num_steps)
            for _ in turns:
                once()

    def take_totals(self) -> Totals:
        """Return the sums since the last call, on the device, and reset them."""
        gain, entropy, kl, clipped, square, *_, norm = self.totals[: METRICS.value].unbind()
        numbers, episodes = self.numbers, self.totals[METRICS.value :].clone()
        loss = numbers.value_coef * square - gain - numbers.entropy_coef * entropy
        metrics = torch.stack([loss, norm, -gain, square, -entropy, kl, clipped])
        self.totals.zero_()
        return Totals(metrics * numbers.num_updates, *episodes.unbind())

    def _captured(self) -> torch.cuda.CUDAGraph:
        if self._graph is None:
            kept = self._changed()
            before = [tensor.clone() for tensor in kept]
            stream = torch.cuda.Stream(self._device)
            stream.wait_stream(torch.cuda.current_stream(self._device))
            with torch.cuda.stream(stream):
                self._iterate_once()
            torch.cuda.current_stream(self._device).wait_stream(stream)
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                self._iterate_once()
            for tensor, old in zip(kept, before, strict=True):
                tensor.copy_(old)
        return self._graph

    def _changed(self) -> list[Tensor]:
        """Return all tensors that an iteration changes and the next one reads."""
        learner, live = self.learner, self.live
        moments = [moment[0] for moment in learner.optimizer.moments]
        count = learner.optimizer.num_steps
        own = [self._turn, self._progress, self.totals]
        return [
            learner.flat.vectors[0], *moments, count, *live.state.values(), live.returns,
            live.iteration, *own,
        ]  # fmt: skip

    def _iterate_once(self) -> None:
        self._play()
        self._estimate()
        for epoch in range(self.numbers.num_epochs):
            for minibatch in range(self.numbers.num_minibatches):
                self._update(epoch, minibatch)
        finish_kernel[(1,)](
            self.live.iteration, self._turn, self._progress, self.learner.optimizer.num_steps,
            self._metrics, self._episodes, self.totals, self._rollout_programs,
            NU=self.numbers.num_updates, UP=self._updates_padded, GP=128, **self._launch(4),
        )  # fmt: skip

    @property
    def _weights(self) -> Tensor:
        return self.learner.flat.vectors[0]

    @property
    def _updates_padded(self) -> int:
        return power_of_two(self.numbers.num_updates)

    def _launch(self, num_warps: int) -> dict[str, Any]:
        """Return the launch options of every kernel."""
        if self._device.type != "cuda":
            return {"GPU": False}
        return {"GPU": True, "num_warps": num_warps, "launch_pdl": self._tuning.overlaps}

    def _widths(self) -> dict[str, int]:
        layout = self._layout
        return {
            "F": layout.inputs, "X": layout.first, "Y": layout.second, "R": layout.record,
            "FP": layout.padded(layout.inputs + 4), "XP": layout.padded(layout.first),
            "YP": layout.padded(layout.second), "ZP": layout.padded(layout.outputs),
        }  # fmt: skip

    def _play(self) -> None:
        numbers, layout, live, tuning = self.numbers, self._layout, self.live, self._tuning
        begin, features, advance = self._functions
        rollout_kernel[(self._rollout_programs,)](
            live.state["numbers"], live.state["steps"], live.returns,
            self._weights[layout.policy_at :], self._records, self._finals, self._episodes,
            self._keys, live.iteration, self._table, numbers.num_games, numbers.rollout_steps,
            self._game.max_steps, begin=begin, features=features, advance=advance,
            S=self._game.num_numbers, U=self._game.num_uniforms, Z=layout.outputs, E=tuning.games,
            CP=self._num_constants,
            **self._widths() | {"ZP": max(tuning.rollout_outputs, layout.padded(layout.outputs))},
            **self._launch(tuning.rollout_warps),
        )  # fmt: skip

    def _estimate(self) -> None:
        numbers, layout = self.numbers, self._layout
        rows, games, size = numbers.num_rows, numbers.num_games, self._size
        values_kernel[(min(triton.cdiv(rows + games, 64), 4 * PROGRAMS),)](
            self._weights[layout.value_at :], self._records, self._finals, self._values,
            self._final_values, rows, rows + games, M=64, **self._widths(), **self._launch(4),
        )  # fmt: skip
        advantages_kernel[(triton.cdiv(games, self._scan_games),)](
            self._records, self._values, self._final_values, numbers.reward_scale, numbers.gamma,
            numbers.gae_lambda, games, numbers.rollout_steps, R=layout.record, F=layout.inputs,
            TP=self._steps_padded, E=self._scan_games, **self._launch(4),
        )  # fmt: skip
        is_normalised = numbers.normalise_advantage and size > 1
        if is_normalised:
            sums_kernel[(self._sum_programs,)](
                self._records, self._table, self._sums, rows, numbers.num_minibatches,
                numbers.num_updates, half(rows), size.bit_length() - 1, R=layout.record,
                F=layout.inputs, UP=self._updates_padded, M=SUM_ROWS, CP=self._num_constants,
                **self._launch(4),
            )  # fmt: skip
        statistics_kernel[(1,)](
            self._sums, self._statistics, self._sum_programs, numbers.num_updates, float(size),
            UP=self._updates_padded, G=64, NORMALISED=is_normalised, **self._launch(4),
        )  # fmt: skip

    def _update(self, epoch: int, minibatch: int) -> None:
        numbers, layout, tuning = self.numbers, self._layout, self._tuning
        config, value_clip = self._config, numbers.value_clip
        max_norm = self.learner.gradient_step.max_grad_norm
        gradient_kernel[(2 * self._programs,)](
            self._weights, self._records, self._statistics, self._table, self._schedule,
            self._turn, self._partials, epoch, minibatch, numbers.num_minibatches, numbers.num_updates,
            self._num_blocks, self._programs, numbers.num_rows - 1, half(numbers.num_rows), self._size,
            value_clip or 0.0, numbers.value_coef, numbers.entropy_coef,
            POLICY_AT=layout.policy_at, VALUE_AT=layout.value_at, WIDTH=layout.width,
            Z=layout.outputs, M=tuning.rows, VALUE_CLIP=value_clip is not None, **self._widths(),
            **self._launch(tuning.warps),
        )  # fmt: skip
        reduce_kernel[(self._num_pieces,)](
            self._partials, self._gradient, self._squares, layout.num_parameters, 1.0 / self._size,
            self._programs, WIDTH=layout.width, GP=min(128, self._programs_padded),
            P=tuning.pieces, **self._launch(4),
        )  # fmt: skip
        first, second = (moment[0] for moment in self.learner.optimizer.moments)
        adam_kernel[(self._num_pieces,)](
            self._weights, first, second, self._gradient, self._squares, self._progress,
            self._schedule, self._turn, self._metrics, self._log_betas,
            epoch * numbers.num_minibatches + minibatch, numbers.num_updates, layout.num_parameters,
            max_norm or 0.0, 1.0 - config.beta1, config.beta2, 1.0 - config.beta2, config.eps,
            config.weight_decay, WIDTH=layout.width, NS=self._num_pieces, SP=power_of_two(self._num_pieces),
            P=tuning.pieces, CLIPPED=max_norm is not None, DECOUPLED=config.kind == "adamw",
            **self._launch(1),
        )  # fmt: skip
