"""The compiled update of every agent learns what the eager one learns, and resumes exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import ludus
from ludus.nn.engines import compiled
from ludus.nn.engines.compiled import CompiledMethod
from ludus.nn.engines.tape import Taped
from ludus.store.checkpoint import digest_of
from tests.rl.known_problems import learning, problem
from tests.rl.odd_networks import engine_of
from tests.rl.small import BY_KL, NORMALISE, PRIORITISED, small

# Torch warns of its own code when its compiler is first imported.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trace as for the compiler, but run the trace as it is, which costs a tenth of a second."""
    monkeypatch.setattr(compiled, "BACKEND", "eager")


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "dqn": ("dqn", {}),
    "dqn with all": (
        "dqn",
        {
            "replay.prioritised": PRIORITISED,
            "dueling": True,
            "n_step": 2,
            "normalise": NORMALISE,
            "max_grad_norm": 0.1,
            "target.sync_every_opt_steps": 3,
        },
    ),
    "iqn": ("iqn", {"target.tau": 0.1, "target.sync_every_opt_steps": 2}),
    "sac": ("sac", {"normalise": NORMALISE}),
    "ppo": ("ppo", {"normalise": NORMALISE, "value_clip": 0.2}),
    "ppo of numbers": ("ppo", {"env.id": "Pendulum-v1", **BY_KL, "shared_body": True}),
}


def trained(kind: str, root: Path, *, compiled: bool, **changes: Any) -> Any:
    length = {"max_env_steps": 72} if kind == "ppo" else {"steps.max_opt_steps": 12}
    trainer: Any = ludus.build_trainer(
        small(kind, engine="compiled" if compiled else "tape", **{**length, **changes})
    )
    trainer.fit(root=str(root), name=f"{kind}-{compiled}")
    return trainer


@pytest.mark.parametrize(("kind", "changes"), CASES.values(), ids=CASES.keys())
@pytest.mark.usefixtures("traced")
def test_the_traced_update_is_the_eager_one(
    tmp_path: Path, kind: str, changes: dict[str, Any]
) -> None:
    """Weights, targets, moments and metrics, after some updates with a falling learning rate."""
    eager, traced = (trained(kind, tmp_path, compiled=c, **changes) for c in (False, True))
    assert isinstance(engine_of(traced.agent), CompiledMethod)
    assert isinstance(engine_of(eager.agent), Taped)
    for name, part in eager.agent.learned().items():
        other = traced.agent.learned()[name]
        torch.testing.assert_close(other.state_dict(), part.state_dict(), rtol=1e-3, atol=1e-5)
    assert traced.run.counters == eager.run.counters


@pytest.mark.parametrize(
    ("kind", "env"),
    [("dqn", "tests_choice"), ("ppo", "tests_pair")],
)
@pytest.mark.usefixtures("traced")
def test_the_traced_update_with_masks_is_the_eager_one(tmp_path: Path, kind: str, env: str) -> None:
    length = {"max_env_steps": 256} if kind == "ppo" else {"steps.max_opt_steps": 12}
    made = []
    for is_compiled in (False, True):
        config = learning(
            kind,
            problem(env, 2, has_masks=True),
            **length,
            engine="compiled" if is_compiled else "tape",
        )
        trainer: Any = ludus.build_trainer(config)
        trainer.fit(root=str(tmp_path), name=str(is_compiled))
        made.append(trainer.agent.learner.state_dict())
    torch.testing.assert_close(made[1], made[0], rtol=1e-3, atol=1e-5)


class Interrupt:
    """Asks the run to pause after some updates."""

    def __init__(self, at: int) -> None:
        self.at = at

    def after_train_step(self, run: Any) -> None:
        run.interrupted = run.counters["opt_steps"] == self.at


def check_the_real_compiler(kind: str, root: Path, **changes: Any) -> None:
    """Compiled code learns what eager code learns; cut after 7 updates it ends with the same bytes."""
    length = {"max_env_steps": 72} if kind == "ppo" else {"steps.max_opt_steps": 12}

    def fit(name: str, at: int, *, compiled: bool, resume: bool = False) -> tuple[Any, Any]:
        config = small(kind, engine="compiled" if compiled else "tape", **{**length, **changes})
        trainer: Any = ludus.build_trainer(config)
        trainer.add(Interrupt(at))
        return trainer, trainer.fit(root=str(root), name=name, resume=resume)

    straight, _ = fit("straight", -1, compiled=True)
    assert isinstance(engine_of(straight.agent), CompiledMethod)
    eager, _ = fit("eager", -1, compiled=False)
    for name, part in eager.agent.learned().items():
        other = straight.agent.learned()[name]
        torch.testing.assert_close(other.state_dict(), part.state_dict(), rtol=1e-3, atol=1e-5)
    _, cut = fit("broken", 7, compiled=True)
    assert cut.status == "interrupted"
    resumed, result = fit("broken", -1, compiled=True, resume=True)
    assert (result.status, result.exact) == ("finished", "expected")
    digests = [digest_of(dict(t.agent.state_dict())) for t in (straight, resumed)]
    assert digests[0] == digests[1]
    written = [(root / name / "metrics.jsonl").read_bytes() for name in ("broken", "straight")]
    assert written[0] == written[1]


def test_a_compiled_run_learns_as_an_eager_one_and_resumes_exactly(tmp_path: Path) -> None:
    check_the_real_compiler("dqn", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "changes"), CASES.values(), ids=CASES.keys())
def test_the_real_compiler_serves_every_agent(
    tmp_path: Path, kind: str, changes: dict[str, Any]
) -> None:
    check_the_real_compiler(kind, tmp_path, **changes)


def test_auto_compiles_long_runs_alone_and_says_so_in_the_config(tmp_path: Path) -> None:
    for opts, expected in ((24, False), (150_000, True)):
        trainer: Any = ludus.build_trainer(
            small("dqn", engine="auto", **{"steps.max_opt_steps": opts})
        )
        trainer.prepare(max_steps=None)
        assert trainer.config.engine == ("compiled" if expected else "tape")
        assert isinstance(engine_of(trainer.agent), CompiledMethod) is expected
