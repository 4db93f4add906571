"""What Compute sets for a walk: TF32 on CUDA by the key of the config, and as it was after the walk."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch

import ludus
from ludus.config.base import from_data
from ludus.core.errors import ConfigError
from ludus.session.device import Compute, Tf32

# What torch says of products of matrices, and whether convolutions and RNNs may use TF32.
SWITCHES = {False: ("highest", False), "convolutions": ("highest", True), True: ("high", True)}


def switches() -> tuple[str, bool]:
    return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32


def as_if_on_cuda(kind: str, **changes: Any) -> Compute:
    """Return what a run on a GPU sets; the switches can be set where there is none."""
    compute = Compute.of(ludus.example(kind, **changes, **{"settings.device": "cpu"}))
    compute.device = torch.device("cuda")
    return compute


@pytest.mark.parametrize("kind", ["supervised", "active"])
@pytest.mark.parametrize("tf32", [False, "convolutions", True])
def test_tf32_is_for_the_products_that_the_key_names_and_for_the_walk_alone(
    kind: str, tf32: Tf32
) -> None:
    before = switches()
    with as_if_on_cuda(kind, tf32=tf32):
        assert switches() == SWITCHES[tf32]
    assert switches() == before


def test_a_config_without_the_key_leaves_torch_as_it_is() -> None:
    before = switches()
    with as_if_on_cuda("dqn"):
        assert switches() == before


def test_on_the_cpu_nothing_is_set() -> None:
    before = switches()
    with Compute.of(ludus.example("supervised", tf32=True, **{"settings.device": "cpu"})):
        assert switches() == before


def test_switches_that_a_script_has_set_by_torchs_other_api_are_refused() -> None:
    script = (
        "import torch\n"
        "from ludus.session.device import products_in\n"
        "torch.backends.cuda.matmul.fp32_precision = 'tf32'\n"
        "products_in(False).__enter__()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert "leave them to the key 'tf32'" in done.stderr


def test_files_from_before_the_key_go_on_as_torch_did_by_itself() -> None:
    data = ludus.example("supervised").model_dump()
    del data["tf32"]
    older = {key: value for key, value in data.items() if not key.startswith("evaluat")}
    older |= {"version": 3, "with_validation": True, "early_stopping": None, "best_model": None}
    assert from_data(older, source="old").tf32 == "convolutions"  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="'tf32' is missing"):
        from_data(data, source="new")
    with pytest.raises(ConfigError, match="tf32"):
        from_data({**data, "tf32": "matmuls"}, source="new")
