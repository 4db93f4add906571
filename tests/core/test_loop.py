"""The one loop, on eight toy plans: wherever it is cut and taken up again, nothing shows."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any

import pytest

from ludus.core import Every, Interrupted, LudusError, PlanError, Repeat, Run, Stage, Trainer
from ludus.core.counters import declare
from ludus.core.loop import walk
from ludus.core.plan import hook_names, walk_nodes
from ludus.core.run import Stateful
from ludus.core.runtime import InMemoryRuntime, Request
from ludus.seeds import GlobalRandom, seed_everything
from ludus.session.logger import Logger
from ludus.store import codec
from ludus.testing.recorder import listen
from tests.conftest import modules_in

TOYS = {name: case for name, case in modules_in("contracts/trainers").items() if "toy" in name}
every_toy = pytest.mark.parametrize("toy", TOYS.values(), ids=TOYS.keys())


KEPT: dict[str, Any] = {}
"""The models of the walk under way; they are there after a cut, as files would be."""


class Cut(BaseException):
    """The process dies here."""


class InMemory(InMemoryRuntime):
    """Surroundings that write every state they see as JSON text, and can cut the walk."""

    def __init__(self, trainer: Trainer, request: Request) -> None:
        super().__init__(trainer, request)
        self.states: list[tuple[str, dict[str, Any]]] = []
        self.cut_after: int | None = None
        self.random = GlobalRandom()
        trainer.run.log = Logger(Logger.Config(backends=[]))
        trainer.run.keep_model = lambda name, weights, note: KEPT.update({name: weights})
        trainer.run.recall_model = KEPT.__getitem__
        seed_everything(3)

    def open(self, run: Run, parts: Mapping[str, Stateful]) -> Mapping[str, Any] | None:
        self._saved = self._start
        if self._saved is None:
            return None
        tree, tensors = self._saved
        state = codec.decode(json.loads(tree), tensors, [])
        self.random_state = state.pop("random")
        return state

    def ready(self, run: Run) -> None:
        if self._saved is not None:
            self.random.load_state_dict(self.random_state)

    def checkpoint(self, run: Run, /) -> None:
        state = self._trainer.state_dict() | {"random": self.random.state_dict()}
        tree, tensors, _ = codec.encode(state, keep=lambda path, tensor: tensor.clone())
        self.states.append((json.dumps(tree), tensors))
        if self.cut_after == run.boundaries:
            raise Cut

    _start: Any = None


def walk_toy(toy, *, cut_after: int | None = None, start: Any = None) -> tuple[Trainer, InMemory]:
    trainer = toy.make()
    made: list[InMemory] = []

    def make_runtime(self: Trainer, request: Request) -> InMemory:
        runtime = InMemory(self, request)
        runtime.cut_after, runtime._start = cut_after, start
        made.append(runtime)
        return runtime

    listen(trainer)
    with contextlib.suppress(Cut):
        trainer.fit(runtime=make_runtime)
    return trainer, made[0]


def outcome(trainer: Trainer) -> dict[str, Any]:
    heard = trainer.callbacks["recorder"].heard
    return {
        "result": trainer.result,
        "counters": trainer.run.counters,
        "heard": heard,
        "stop": trainer.run.stop_reason,
        "boundaries": trainer.run.boundaries,
    }


@every_toy
def test_cut_after_every_boundary_and_rebuilt_from_json_the_walk_ends_the_same(toy) -> None:
    whole, runtime = walk_toy(toy)
    expected = outcome(whole)
    assert len(runtime.states) == whole.run.boundaries > 5
    for boundary in range(1, whole.run.boundaries):
        _, cut = walk_toy(toy, cut_after=boundary)
        assert len(cut.states) == boundary
        again, _ = walk_toy(toy, start=cut.states[-1])
        assert outcome(again) == expected, f"cut after boundary {boundary}"


@every_toy
def test_a_cursor_is_a_short_json_list_that_names_the_node_about_to_open(toy) -> None:
    _, runtime = walk_toy(toy)
    for tree, _ in runtime.states[:-1]:
        cursor = json.loads(tree)["run"]["cursor"]
        assert cursor[0][0] == "train"
        assert all(isinstance(name, str) and index >= 0 for name, index, _ in cursor)
        assert len(cursor) <= 5
    assert json.loads(runtime.states[-1][0])["run"]["cursor"] == []


@every_toy
def test_hooks_come_in_pairs_around_every_node(toy) -> None:
    trainer, _ = walk_toy(toy)
    opened: list[str] = []
    after_of = {hook_names(node)[0]: hook_names(node)[1] for node in walk_nodes(trainer.plan())}
    for event in trainer.callbacks["recorder"].heard:
        name = event.split()[0]
        if name in after_of:
            opened.append(after_of[name])
        else:
            assert opened.pop() == name
    assert opened == []


def simple(*stages: Stage | Repeat, times: int = 1) -> Repeat:
    loop = Repeat(name="round", times=times, counter="iteration", body=tuple(stages))
    return Repeat(name="train", times=1, body=(loop,))


class Tiny(Trainer):
    """A plan given from outside, walked in memory."""

    def make_runtime(self, request: Request) -> InMemoryRuntime:
        return InMemoryRuntime(self, request)

    def __init__(self, plan: Any) -> None:
        super().__init__(None)
        self.events: list[str] = []
        self._plan = plan

    def plan(self) -> Repeat:
        return self._plan(self)

    def parts(self) -> dict[str, Stateful]:
        return {}

    def say(self, name: str, **options: Any) -> Stage:
        return Stage(name=name, work=lambda run: self.events.append(name), **options)


def test_a_stop_gives_every_open_loop_its_after_and_runs_what_is_always_run() -> None:
    class Stopped(Tiny):
        def after_one(self, run: Run) -> None:
            run.stop("enough")

        def after_round(self) -> None:
            self.events.append("after_round")

        def after_train(self) -> None:
            self.events.append("after_train")

    def plan(self: Tiny) -> Repeat:
        loop = Repeat(name="round", times=5, body=(self.say("one"), self.say("two")))
        return Repeat(
            name="train", times=1, body=(loop, self.say("save", always=True), self.say("no"))
        )

    trainer = Stopped(plan)
    result = trainer.fit()
    assert trainer.events == ["one", "after_round", "save", "after_train"]
    assert (result.status, result.reason) == ("stopped", "enough")


def test_leaving_one_loop_ends_it_alone_and_only_once() -> None:
    class Left(Tiny):
        def after_two(self, run: Run) -> None:
            if len(self.events) < 4:
                run.leave("inner", "bored")

    def plan(self: Tiny) -> Repeat:
        inner = Repeat(name="inner", times=2, body=(self.say("one"), self.say("two")))
        return simple(inner, self.say("three"), times=2)

    trainer = Left(plan)
    assert trainer.fit().status == "finished"
    assert trainer.events == ["one", "two", "three", "one", "two", "one", "two", "three"]


class AfterAll(Tiny):
    """Takes a round of a loop that names a hook for its end."""

    rounds = 2

    def after_one(self, run: Run) -> None:
        if "stop" in self.events:
            run.stop("enough")

    def after_turn(self) -> None:
        self.events.append("after_turn")

    def after_turns(self, run: Run) -> None:
        self.events.append("after_turns")


def turns(self: AfterAll) -> Repeat:
    turn = Repeat(
        name="turn", times=lambda run: self.rounds, after_all="after_turns", body=(self.say("one"),)
    )
    return simple(turn, self.say("two"), times=2)


def round_of(plan: Repeat) -> Repeat:
    """Return the loop of a simple plan."""
    loop = plan.body[0]
    assert isinstance(loop, Repeat)
    return loop


def test_a_loop_may_name_a_hook_that_comes_once_after_all_its_rounds() -> None:
    trainer = AfterAll(turns)
    trainer.fit()
    assert trainer.events == ["one", "after_turn", "one", "after_turn", "after_turns", "two"] * 2


def test_a_boundary_follows_the_hook_after_all_rounds_so_that_no_resume_calls_it_again() -> None:
    class Watched(AfterAll):
        def observers(self) -> list[Any]:
            return [lambda run: seen.append(self.events[-1])]

    seen: list[str] = []
    Watched(turns).fit()
    assert seen.count("after_turns") == 2


def test_the_hook_after_all_rounds_comes_where_there_was_none_and_when_the_run_is_stopped() -> None:
    trainer = AfterAll(turns)
    trainer.rounds = 0
    trainer.fit()
    assert trainer.events == ["after_turns", "two"] * 2
    stopped = AfterAll(turns)
    stopped.events.append("stop")
    assert stopped.fit().status == "stopped"
    assert stopped.events == ["stop", "one", "after_turn", "after_turns"]


def test_the_hook_after_all_rounds_is_not_called_for_a_loop_that_was_never_entered() -> None:
    class Early(AfterAll):
        def after_zero(self, run: Run) -> None:
            run.stop("before the loop")

    def plan(self: AfterAll) -> Repeat:
        return simple(self.say("zero"), *round_of(turns(self)).body)

    trainer = Early(plan)
    trainer.fit()
    assert trainer.events == ["zero"]


def test_a_resume_calls_the_hook_after_all_rounds_once() -> None:
    """Cut at each boundary, that before the loop closes and that after it among them."""
    whole = AfterAll(turns)
    whole.fit()
    for cut in range(1, whole.run.boundaries):

        class Paused(AfterAll):
            def observers(self) -> list[Any]:
                return [self._pause]

            def _pause(self, run: Run, at: int = cut) -> None:
                run.interrupted = run.boundaries == at

        first, second = Paused(turns), AfterAll(turns)
        assert first.fit().status == "interrupted"
        second.fit(trainer_state=first.state_dict())
        assert [*first.events, *second.events] == whole.events


def test_a_loop_with_a_condition_and_a_hook_after_all_rounds_is_refused() -> None:
    def plan(self: Tiny) -> Repeat:
        loop = Repeat(
            name="turn", times=1, when=lambda run: True, after_all="x", body=(self.say("one"),)
        )
        return simple(loop)

    with pytest.raises(PlanError, match="'turn' has when and after_all"):
        Tiny(plan).fit()


def test_leaving_a_loop_that_is_not_open_is_refused_with_the_open_ones() -> None:
    class Wrong(Tiny):
        def after_one(self, run: Run) -> None:
            run.leave("rounds", "typo")

    with pytest.raises(PlanError, match=r"'rounds'.*Did you mean 'round'"):
        Wrong(lambda self: simple(self.say("one"))).fit()


def test_an_interrupt_runs_no_after_hook_and_can_be_taken_up() -> None:
    class Paused(Tiny):
        def after_one(self, run: Run) -> None:
            run.interrupted = run.counters["iteration"] == 1

        def after_train(self) -> None:
            self.events.append("after_train")

    trainer = Paused(lambda self: simple(self.say("one"), times=4))
    result = trainer.fit()
    assert result.status == "interrupted"
    assert trainer.events == ["one", "one"]
    state = trainer.state_dict()
    again = Paused(lambda self: simple(self.say("one"), times=4))
    assert again.fit(trainer_state=state).status == "finished"
    assert again.events == ["one", "one", "after_train"]


def test_a_long_stage_may_raise_interrupted_itself() -> None:
    def plan(self: Tiny) -> Repeat:
        def work(run: Run) -> None:
            raise Interrupted

        return simple(self.say("one"), Stage(name="long", work=work))

    trainer = Tiny(plan)
    assert trainer.fit().status == "interrupted"
    assert trainer.run.boundaries == 1


def test_a_finished_run_goes_on_when_its_loop_is_made_longer() -> None:
    trainer = Tiny(lambda self: simple(self.say("one"), times=2))
    trainer.fit()
    longer = Tiny(lambda self: simple(self.say("one"), times=5))
    result = longer.fit(trainer_state=trainer.state_dict())
    assert longer.events == ["one"] * 3
    assert result.counters["iteration"] == 5


def test_a_finished_run_that_is_no_longer_does_nothing_again() -> None:
    class Ending(Tiny):
        def after_train(self) -> None:
            self.events.append("after_train")

    trainer = Ending(lambda self: simple(self.say("one"), times=2))
    trainer.fit()
    again = Ending(lambda self: simple(self.say("one"), times=2))
    assert again.fit(trainer_state=trainer.state_dict()).status == "finished"
    assert again.events == []


def test_whether_a_finished_run_goes_on_passes_through_decide() -> None:
    def plan(self: Tiny) -> Repeat:
        until = lambda run: run.counters["iteration"] >= 2  # noqa: E731
        loop = Repeat(name="round", until=until, counter="iteration", body=(self.say("one"),))
        return Repeat(name="train", times=1, body=(loop,))

    class Collective(Tiny):
        def prepare(self, *, max_steps: int | None) -> None:
            self.run.decide = lambda value: asked.append(value) or value

    trainer, asked = Tiny(plan), []
    trainer.fit()
    again = Collective(plan)
    again.fit(trainer_state=trainer.state_dict())
    assert (again.events, asked) == ([], [True])


def test_an_interval_in_a_counter_of_another_family_is_refused_before_the_walk() -> None:
    class Waits:
        def __init__(self, every: Every) -> None:
            self.every = (Every(1, "epoch"), every)

    declare(["bout"], "another")
    try:
        trainer = Tiny(lambda self: simple(self.say("one")))
        trainer.add(Waits(Every(2, "bout")), name="waits")
        with pytest.raises(PlanError, match="the counter 'bout' is that of another's trainers"):
            trainer.fit()
    finally:
        declare([], "another")
    assert trainer.events == []


def test_every_decision_passes_through_decide() -> None:
    asked: list[Any] = []

    class Collective(Tiny):
        def prepare(self, *, max_steps: int | None) -> None:
            self.run.decide = lambda value: asked.append(value) or value

    def plan(self: Tiny) -> Repeat:
        loop = Repeat(
            name="round",
            times=lambda run: 2,
            until=lambda run: False,
            when=lambda run: True,
            body=(self.say("one", when=lambda run: True),),
        )
        return Repeat(name="train", times=1, body=(loop,))

    trainer = Collective(plan)
    trainer.fit()
    assert trainer.events == ["one", "one"]
    assert asked.count(2) == 1
    assert asked.count(True) == 3


def test_observers_run_in_order_and_the_checkpoint_sees_what_they_did() -> None:
    order: list[str] = []

    class Around(InMemoryRuntime):
        def checkpoint(self, run: Run, /) -> None:
            order.append("checkpoint")

    class Watched(Tiny):
        def observers(self) -> list[Any]:
            return [lambda run: order.append("first"), lambda run: order.append("second")]

        def after_round(self) -> None:
            order.append("hook")

    Watched(lambda self: simple(self.say("one"))).fit(runtime=Around)
    assert order == ["hook", *["first", "second", "checkpoint"] * 2]


def test_a_trainer_of_the_bare_core_says_what_it_lacks_and_walks_in_memory_when_told_to() -> None:
    class Own(Trainer):
        def plan(self) -> Repeat:
            return simple(Stage(name="one", work=lambda run: None))

        def parts(self) -> dict[str, Any]:
            return {}

    with pytest.raises(LudusError, match=r"derive it from ludus\.session\.Trainer"):
        Own(None).fit()
    result = Own(None).fit(runtime=InMemoryRuntime)
    assert (result.status, result.run_dir) == ("finished", None)


def test_what_is_around_a_walk_is_that_of_one_call_and_leaves_the_class_alone(tmp_path) -> None:
    trainer = TOYS["toy_fused"].make()
    trainer.set_logger(Logger(Logger.Config(backends=[])))
    assert trainer.fit(runtime=InMemoryRuntime).run_dir is None
    assert trainer.fit(root=str(tmp_path)).run_dir == str(tmp_path / trainer.config.name)
    assert type(trainer) is type(TOYS["toy_fused"].make())


def test_a_run_pauses_at_the_boundary_where_that_is_decided_by_all() -> None:
    run, seen, asked = Run(), [], [False]
    stage = Stage(name="work", work=lambda run: None)
    loop = Repeat(name="step", times=9, counter="opt_steps", body=(stage,))
    plan = Repeat(name="train", times=1, body=(loop,))

    def observe(run: Run) -> None:
        asked[0] = run.counters["opt_steps"] == 4

    def decide(value: Any) -> Any:
        # The observer comes just before: the next decision is whether to pause.
        is_asked, asked[0] = asked[0], False
        return is_asked or value

    run.decide = decide
    with pytest.raises(Interrupted):
        walk(plan, run, {}, [observe], lambda run: seen.append(run.is_pausing))
    assert run.counters["opt_steps"] == 4
    assert not run.interrupted, "the signal was another process's"
    assert seen.count(True) == 1
    assert seen[-1]


def test_a_stage_asks_which_round_a_loop_is_in() -> None:
    run, rounds = Run(), []
    stage = Stage(
        name="work", work=lambda run: rounds.append((run.round("epoch"), run.round("step")))
    )
    step = Repeat(name="step", times=2, body=(stage,))
    epoch = Repeat(name="epoch", times=2, body=(step,))
    walk(Repeat(name="train", times=1, body=(epoch,)), run, {}, [], lambda run: None)
    assert rounds == [(0, 0), (0, 1), (1, 0), (1, 1)]
    with pytest.raises(PlanError, match="'epoch' is not open, so it is in no round"):
        run.round("epoch")
