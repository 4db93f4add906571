"""The training loop: walk any plan from any cursor, calling the hooks around every node.

    before_<loop>                             once a round
      before_<stage>, work, after_<stage>
    after_<loop>                              and after_all once, where the loop names such a hook
    -- boundary --                            observers, then the checkpoint

A boundary comes just before a node opens, if anything happened since the last one, and at the end.
So a saved cursor names the next node: its condition and its hooks are still to be called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ludus.core.cursor import Cursor, Frame, to_json
from ludus.core.errors import Interrupted
from ludus.core.hooks import Hooks
from ludus.core.plan import Repeat, Stage, hook_names
from ludus.core.run import Observer, Run

# A node with everything bound to it; it takes, and consumes, the rest of a saved cursor.
Walker = Callable[[Cursor], None]


def walk(
    plan: Repeat, run: Run, hooks: Hooks, observers: Sequence[Observer], checkpoint: Observer
) -> None:
    """Walk the plan from run.cursor (empty: the beginning) to its end; a signal raises Interrupted."""

    def boundary() -> None:
        run.is_pending, run.boundaries = False, run.boundaries + 1
        for observe in observers:
            observe(run)
        run.is_pausing = is_asked = run.decide(run.interrupted)
        checkpoint(run)
        if is_asked and not run.is_finished:
            raise Interrupted

    start, run.cursor = run.cursor, []
    _bind_repeat(plan, run, hooks, boundary)(start)
    run.is_finished = True
    boundary()


def _bind_stage(stage: Stage, run: Run, hooks: Hooks, boundary: Callable[[], None]) -> Walker:
    before, after = (hooks.get(name, ()) for name in hook_names(stage))

    def walk_stage(rest: Cursor) -> None:
        run.cursor.append(rest.pop() if rest else Frame(stage.name))
        if run.is_pending:
            boundary()
        is_open = stage.always or not run.decide(run.is_ending)
        if is_open and (stage.when is None or run.decide(stage.when(run))):
            for hook in before:
                hook()
            run.record(stage.work(run))
            for hook in after:
                hook()
            run.is_pending = True
        run.cursor.pop()

    return walk_stage


def _bind_repeat(loop: Repeat, run: Run, hooks: Hooks, boundary: Callable[[], None]) -> Walker:
    before, after, *after_all = (hooks.get(name, ()) for name in hook_names(loop))
    more = (run, hooks, boundary)
    body = [
        _bind_stage(child, *more) if isinstance(child, Stage) else _bind_repeat(child, *more)
        for child in loop.body
    ]
    body_from = {child.name: body[index:] for index, child in enumerate(loop.body)}

    def opens(frame: Frame) -> bool:
        if run.decide(run.is_ending):
            return False
        if not callable(loop.times):
            frame.total = loop.times
        if frame.index == 0:
            if loop.when is not None and not run.decide(loop.when(run)):
                return False
            if callable(loop.times):
                frame.total = run.decide(loop.times(run))
        if frame.total is not None and frame.index >= frame.total:
            return False
        return loop.until is None or not run.decide(loop.until(run))

    def walk_repeat(rest: Cursor) -> None:
        frame = rest.pop(0) if rest else Frame(loop.name)
        run.cursor.append(frame)
        # A saved cursor that continues below this loop is inside an open round.
        is_open, todo = bool(rest), body_from[rest[0].name] if rest else body
        while True:
            if not is_open:
                if run.is_pending and len(run.cursor) > 1:  # the root's boundary is in `walk`
                    boundary()
                if not opens(frame):
                    break
                for hook in before:
                    hook()
            for child in todo:
                child(rest)
            for hook in after:
                hook()
            if loop.counter is not None:
                run.counters[loop.counter] += 1
            frame.index += 1
            run.is_pending, is_open, todo = True, False, body
        if len(run.cursor) == 2 and (not run.is_ending or (run.stop_key and frame.index)):
            run.exhausted = to_json(run.cursor)
        run.cursor.pop()
        run.leaving = None if run.leaving == loop.name else run.leaving
        if after_all and (frame.index or not run.decide(run.is_ending)):
            for hook in after_all[0]:
                hook()
            run.is_pending = True

    return walk_repeat
