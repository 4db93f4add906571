"""The plan of RL in the arena: iterations of episodes and updates, then the test and the saved models."""

from __future__ import annotations

from collections.abc import Sequence

from ludus.arena.rl_config import RlHyperParameters
from ludus.core import Repeat, Stage
from ludus.core.intervals import Work, passes


def make_plan(
    config: RlHyperParameters,
    *,
    collect: Work,
    estimate: Work,
    train_step: Work,
    then: Sequence[Stage],
    test: Work,
    save_models: Work,
    train_loop: Work | None,
    first: Sequence[Stage | Repeat],
) -> Repeat:
    """Return the plan; `first` comes before all iterations, `then` after each.

    `train_loop` is a loop that a script defines, one stage in place of the iterations.
    """
    num_minibatches = config.frames_per_batch // config.rl.minibatch_size
    iteration = Repeat(
        name="iteration",
        times=config.max_iterations,
        body=(
            Stage(name="collect", work=collect),
            Stage(name="estimate", work=estimate),
            passes(config.rl.num_epochs, num_minibatches, train_step),
            *then,
        ),
    )
    loop = iteration if train_loop is None else Stage(name="run_train_loop", work=train_loop)
    body: list[Stage | Repeat] = [*first, loop]
    if config.rl.num_test_iterations:
        body.append(Stage(name="test", work=test, always=True))
    body.append(Stage(name="save_models", work=save_models, always=True))
    return Repeat(name="train", times=1, body=tuple(body))
