"""Hironaka's game on a GPU: its kernels against the plain functions, and whole steps as one graph."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
import torch

from ludus.games.choose import best, by_tensors, choose
from ludus.games.dqn import rollout_graph
from ludus.games.dqn.inference import Precision
from ludus.games.dqn.rollout_graph import RolloutGraph
from ludus.games.game import State
from ludus.games.hironaka.vertices import drop_non_vertices
from ludus.games.kernels import hironaka as kernels
from ludus.games.networks import make_net
from ludus.games.rules.hironaka import Hironaka

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    # torch warns, once a process, that the mode does not find every wait.
    pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning"),
]
CUDA = torch.device("cuda")
GAMES = 1003
SIZES = [(2, 5, 3), (3, 20, 20), (3, 20, 2), (4, 33, 6), (3, 64, 40), (8, 32, 3)]
"""Dimension, points and the greatest value of a start."""


@contextlib.contextmanager
def plainly() -> Iterator[None]:
    """Play by the plain functions, on the same device."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "why_not", lambda points_BND: "asked not to")
        yield


def game(size: tuple[int, int, int], *, scale: bool) -> Hironaka:
    dimension, points, value = size
    return Hironaka(
        dimension=dimension, max_num_points=points, max_value=value, scale_observation=scale
    )


def starts(own: Hironaka, seed: int) -> torch.Tensor:
    """Return points of which some are missing, all are, or all are equal."""
    generator = torch.Generator(CUDA).manual_seed(seed)
    shape = GAMES, own.max_num_points, own.dimension
    points = torch.randint(own.max_value + 1, shape, generator=generator, device=CUDA).float()
    points[::3, 1::2] = -1
    points[5], points[6] = -1, 0
    return points


def same(one: State, other: State) -> bool:
    return all(torch.equal(one[name], other[name]) for name in other)


@pytest.mark.covers("001-D12")
@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_the_kernels_play_as_the_plain_functions_to_the_bit(
    size: tuple[int, int, int], scale: bool
) -> None:
    own = game(size, scale=scale)
    points = starts(own, 1)
    # Some are so large that their sums are brought down by a power of two, or cut off.
    points[7:12] = torch.where(points[7:12] >= 0, points[7:12] * 2.0**118, points[7:12])
    assert kernels.why_not(points) is None
    state = own.start(points)
    with plainly():
        assert same(state, own.start(points))
    generator = torch.Generator(CUDA).manual_seed(2)
    for _ in range(6):
        for role in own.roles:
            count = own.actions(role).count
            actions = torch.randint(count, (GAMES,), generator=generator, device=CUDA)
            after = own.step(state, role, actions)
            with plainly():
                wanted = own.step(state, role, actions)
            assert same(after.state, wanted.state)
            assert torch.equal(after.rewards, wanted.rewards)
            state = after.state
            for who in own.roles:
                seen = own.observe(state, who)
                with plainly():
                    assert torch.equal(seen, own.observe(state, who))
    assert int(own.done(state).sum()) > 0


def test_the_kernels_play_in_whole_numbers_and_show_them_divided() -> None:
    scaled, whole = (game((3, 20, 20), scale=scale) for scale in (True, False))
    points = starts(scaled, 5)
    one, other = scaled.start(points), whole.start(points)
    for turn in range(8):
        for role in scaled.roles:
            actions = torch.full((GAMES,), turn % 3, device=CUDA)
            one = scaled.step(one, role, actions).state
            other = whole.step(other, role, actions).state
        assert same(one, other)
        assert float(scaled.observe(one, "host").amax()) <= 1.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("role", ["host", "agent"])
def test_an_observation_is_written_in_the_type_and_width_of_the_network(
    role: str, dtype: torch.dtype
) -> None:
    own = game((3, 20, 20), scale=True)
    actions = torch.arange(GAMES, device=CUDA) % 4
    state = own.step(own.start(starts(own, 3)), "host", actions).state
    seen = own.observe_as(state, role, width=72, dtype=dtype)
    with plainly():
        assert torch.equal(seen, own.observe_as(state, role, width=72, dtype=dtype))


@pytest.mark.covers("001-D12")
def test_a_move_of_many_games_takes_no_memory_but_that_of_its_result() -> None:
    own = game((3, 20, 20), scale=True)
    state = own.reset(100_000, torch.Generator(CUDA).manual_seed(0))
    axis = torch.zeros(100_000, dtype=torch.int64, device=CUDA)
    own.step(state, "agent", axis)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    own.step(state, "agent", axis)
    assert torch.cuda.max_memory_allocated() - before < 1.2 * 100_000 * (20 * 3 + 3 + 2) * 4


@contextlib.contextmanager
def not_waiting() -> Iterator[None]:
    """Fail where the host waits for the GPU."""
    try:
        torch.cuda.set_sync_debug_mode("error")
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("moves", [3, 4, 11])
def test_the_kernel_chooses_as_the_tensors_do(moves: int, dtype: torch.dtype) -> None:
    generator = torch.Generator(CUDA).manual_seed(1)
    values = torch.rand(GAMES, moves + 2, generator=generator, device=CUDA).to(dtype)[:, :moves]
    legal = torch.rand(GAMES, moves, generator=generator, device=CUDA) < 0.6
    legal[7] = False
    draws = torch.rand(GAMES, 2, 2, generator=generator, device=CUDA)[:, 1]
    rate = torch.tensor(0.5, device=CUDA)
    for mask in (legal, None):
        chosen = choose(values, mask, rate=rate, draws_B2=draws)
        assert torch.equal(chosen, by_tensors(values, mask, rate=rate, draws_B2=draws))
        never = by_tensors(values, mask, rate=torch.zeros_like(rate), draws_B2=draws)
        assert torch.equal(best(values, mask), never)


def rollout(*, restart: bool, precision: Precision, rounds: int = 2) -> RolloutGraph:
    torch.manual_seed(0)
    own = game((3, 20, 20), scale=True)
    nets = {
        role: make_net([64, 128], own.observation_size(role), own.actions(role).count).to(CUDA)
        for role in own.roles
    }
    made = RolloutGraph(
        own,
        nets,
        games=GAMES,
        generator=torch.Generator(CUDA).manual_seed(4),
        restart=restart,
        precision=precision,
        rounds=rounds,
    )
    for rate in made.rates.values():
        rate.fill_(0.3)
    return made


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
def test_a_replayed_graph_plays_as_calls_one_by_one_and_draws_on(
    precision: Precision, restart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(rollout_graph.CHUNKS, "cuda", 500)
    graph, calls = (rollout(restart=restart, precision=precision) for _ in range(2))
    for _ in range(7):
        graph.advance()
        calls._play()
        assert same(graph.state, calls.state)
    assert torch.equal(graph.generator.get_state(), calls.generator.get_state())


def test_a_replay_waits_for_nothing_and_takes_the_present_weights_and_rates() -> None:
    own, other = (rollout(restart=False, precision="float32", rounds=1) for _ in range(2))
    for each in (own, other):
        for _ in range(5):
            each.advance()
    for inference in own._nets.values():
        for weight in inference._net.parameters():
            torch.nn.init.normal_(weight)
    own.rates["host"].fill_(0.0)
    with not_waiting():
        own.advance()
    other.advance()
    assert not torch.equal(own.state["points"], other.state["points"])


@pytest.mark.parametrize("scale", [False, True])
def test_new_games_take_the_place_of_finished_ones_as_by_the_plain_functions(scale: bool) -> None:
    own = game((3, 20, 2), scale=scale)
    state = own.start(starts(own, 7))
    state["coords"].fill_(1.0)
    assert 0 < int(own.done(state).sum()) < GAMES
    anew = own.restart(state, torch.Generator(CUDA).manual_seed(1))
    with plainly():
        assert same(anew, own.restart(state, torch.Generator(CUDA).manual_seed(1)))


@pytest.mark.parametrize("size", SIZES)
def test_the_vertices_on_a_gpu_are_those_on_a_cpu_and_nothing_waits(
    size: tuple[int, int, int],
) -> None:
    points = starts(game(size, scale=False), 0)
    torch.cuda.set_sync_debug_mode("error")
    try:
        kept = drop_non_vertices(points)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.equal(kept.cpu(), drop_non_vertices(points.cpu()))
