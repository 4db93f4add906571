"""Networks of a script under PPO on device games on a GPU, already there when they are given."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.games.ppo.test_own_networks import NETWORKS, check_interrupted

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.mark.parametrize("name", NETWORKS)
def test_a_run_of_any_network_ends_as_if_never_interrupted(name: str, tmp_path: Path) -> None:
    check_interrupted(NETWORKS[name], tmp_path, "cuda")
