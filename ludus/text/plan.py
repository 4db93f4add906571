"""The plan of a run of text: five stages an iteration, then the final test and the saved models."""

from __future__ import annotations

from collections.abc import Callable

from ludus.core import Repeat, Run, Stage
from ludus.core.intervals import Work
from ludus.text.config import TextHyperParameters

_TESTS = {
    "none": "never",
    "all": "every iteration",
    "last": "the last iteration",
    "first_and_last": "the first and the last iteration",
}


def make_plan(
    config: TextHyperParameters,
    *,
    sample_rollouts: Work,
    log_stats: Work,
    test: Work,
    create_fine_tune_jobs: Work,
    await_fine_tune_jobs: Work,
    pretrain: Work,
    await_pretraining: Work,
    final_test: Work,
    save_models: Work,
    is_tested: Callable[[Run], bool],
) -> Repeat:
    """Return the plan; the last iteration tunes nothing, for nobody would speak by the outcome."""

    def is_tuned(run: Run) -> bool:
        return run.counters["iteration"] < config.max_iterations - 1

    tunes = config.max_iterations > 1
    jobs = (
        Stage(name="create_fine_tune_jobs", work=create_fine_tune_jobs, when=is_tuned,
              note="not in the last iteration"),
        Stage(name="await_fine_tune_jobs", work=await_fine_tune_jobs, when=is_tuned,
              note="not in the last iteration"),
    )  # fmt: skip
    iteration = Repeat(
        name="iteration",
        times=config.max_iterations,
        counter="iteration",
        body=(
            Stage(name="sample_rollouts", work=sample_rollouts),
            Stage(name="log_stats", work=log_stats),
            Stage(name="test", work=test, when=is_tested, note=_TESTS[config.text_rl.test_scheme]),
            *(jobs if tunes else ()),
        ),
    )
    first: tuple[Stage, ...] = ()
    if config.pretraining is not None:
        first = (
            Stage(name="pretrain", work=pretrain),
            Stage(name="await_pretraining", work=await_pretraining),
        )
    last: tuple[Stage, ...] = (Stage(name="save_models", work=save_models, always=True),)
    if config.rl.num_test_iterations:
        last = (Stage(name="final_test", work=final_test, always=True), *last)
    return Repeat(name="train", times=1, body=(*first, iteration, *last))
