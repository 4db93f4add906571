"""How deep the library is: classes above a trainer, frames of a gradient step, names of classes."""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import ludus
from ludus.config.registry import find, kinds
from ludus.nn.optimizer import Optimizer
from ludus.session.logger import Logger
from tests.test_golden_traces import TRACES

PACKAGE = Path(ludus.__file__).parent
LOOP = str(PACKAGE / "core" / "loop.py")
SHIPPED = sorted(
    {path.stem.split("-")[0] for path in (PACKAGE.parent / "configs").glob("*.yaml")}
    & set(kinds("trainer"))
)


def above(trainer: type[Any]) -> list[str]:
    """Return the classes of ludus above a trainer, mixins too."""
    return [c.__qualname__ for c in trainer.__mro__[1:] if c.__module__.startswith("ludus.")]


@pytest.mark.parametrize("kind", SHIPPED)
def test_at_most_four_classes_stand_above_a_shipped_trainer(kind: str) -> None:
    assert len(above(find("trainer", kind))) <= 4, above(find("trainer", kind))


def frames_of_a_step(kind: str, root: Path) -> list[str]:
    """Return the names of ludus's functions from the stage to the optimizer, at the first eager step."""
    config = TRACES[kind]()
    # A fine-tuning run has no other engine.
    config = config.replace(engine="eager") if "engine" in type(config).model_fields else config
    trainer: Any = ludus.build_trainer(config)
    trainer.set_logger(Logger({"backends": []}))
    found: list[str] = []
    optimizers = {c for c in _below(Optimizer) if "step" in vars(c)}
    with pytest.MonkeyPatch.context() as patch:
        for cls in optimizers:
            patch.setattr(cls, "step", _noting(vars(cls)["step"], found))
        trainer.fit(root=str(root), name="frames")
    return found


def _below(cls: type[Any]) -> list[type[Any]]:
    return [cls, *(one for sub in cls.__subclasses__() for one in _below(sub))]


def _noting(step: Any, found: list[str]) -> Any:
    def noted(*given: Any, **more: Any) -> Any:
        if not found:
            frame: FrameType | None = sys._getframe(1)
            found.append("step")
            while frame is not None and frame.f_code.co_filename != LOOP:
                if frame.f_code.co_filename.startswith(str(PACKAGE)):
                    found.insert(0, frame.f_code.co_name)
                frame = frame.f_back
        return step(*given, **more)

    return noted


# Agents of text take their steps at a provider.
STEPPING = [name for name in TRACES if " " not in name and not name.startswith("pure_text_")]


@pytest.mark.parametrize("kind", STEPPING)
def test_a_gradient_step_is_at_most_six_frames_below_its_stage(kind: str, tmp_path: Path) -> None:
    frames = frames_of_a_step(kind, tmp_path)
    assert frames
    assert len(frames) <= 6, frames
    assert len(set(frames)) <= 4, frames


# The guides that the families come from name these: each family has its own.
NAMED_BY_GUIDES = {"Trainer", "Agent"}


def test_a_class_name_stands_in_one_place() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(PACKAGE)))
    twice = {
        name: found
        for name, found in places.items()
        if len(found) > 1 and name not in NAMED_BY_GUIDES
    }
    assert not twice, "\n".join(f"{name}: {', '.join(found)}" for name, found in twice.items())
