"""A saved policy acts in NumPy as its torch network does, where torch cannot even be imported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from ludus.core.errors import CheckpointError, LudusError
from ludus.envs.spaces import BoxActions, DiscreteActions, MultiDiscreteActions
from ludus.nn.export.numpy_net import numpy_steps
from ludus.nn.export.numpy_policy import Normalisation, NumpyPolicy, save_policy

LOW, HIGH = np.array([-2.0, 0.0], np.float32), np.array([1.0, 5.0], np.float32)


def body() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 16), nn.LayerNorm(16), nn.SiLU())


def steps(module: nn.Module) -> list[Any]:
    found = numpy_steps(module)
    assert found is not None
    return found


def save(path: Path, kind: Any, action: Any, network: nn.Module, **heads: nn.Module) -> NumpyPolicy:
    save_policy(
        path,
        kind=kind,
        obs_shape=(3, 2),
        action=action,
        body=steps(network),
        heads={name: steps(head) for name, head in heads.items()},
    )
    return NumpyPolicy.load(path)


@pytest.fixture
def obs() -> torch.Tensor:
    return 3 * torch.randn(40, 3, 2, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def test_a_greedy_policy_takes_the_action_of_most_value(tmp_path: Path, obs: torch.Tensor) -> None:
    network, q = body(), nn.Linear(16, 5)
    policy = save(tmp_path / "policy", "greedy", DiscreteActions(5, start=3), network, q=q)
    expected = (q(network(obs)).argmax(1) + 3).numpy()
    assert len(set(expected.tolist())) > 2
    found = policy(obs.numpy())
    assert found.dtype == np.int64
    assert np.array_equal(found, expected)
    assert policy(obs[7].numpy()) == expected[7]


def test_a_dueling_policy_adds_its_two_heads(tmp_path: Path, obs: torch.Tensor) -> None:
    network, value, advantage = body(), nn.Linear(16, 1), nn.Linear(16, 4)
    action = DiscreteActions(4, start=0)
    policy = save(tmp_path / "p", "greedy", action, network, value=value, advantage=advantage)
    features = network(obs)
    lead = advantage(features)
    q = value(features) + lead - lead.mean(1, keepdim=True)
    np.testing.assert_allclose(policy.outputs(obs.numpy()), q.detach().numpy(), atol=1e-5)
    assert np.array_equal(policy(obs.numpy()), q.argmax(1).numpy())


def test_masks_leave_only_the_actions_they_allow(tmp_path: Path, obs: torch.Tensor) -> None:
    network, logits = body(), nn.Linear(16, 5)
    action = MultiDiscreteActions(nvec=(2, 3), starts=(0, 10))
    policy = save(tmp_path / "policy", "categorical", action, network, logits=logits)
    out = logits(network(obs))
    free = torch.stack([out[:, :2].argmax(1), out[:, 2:].argmax(1) + 10], 1)
    assert np.array_equal(policy(obs.numpy()), free.numpy())
    masks = np.tile([False, True, True, False, True], (40, 1))
    masked = policy(obs.numpy(), masks)
    assert set(masked[:, 0].tolist()) == {1}
    assert set(masked[:, 1].tolist()) == {10, 12}
    assert np.array_equal(policy(obs[3].numpy(), masks[3]), masked[3])
    masks[0, 2:] = False
    with pytest.raises(LudusError, match="allow no action"):
        policy(obs.numpy(), masks)
    with pytest.raises(LudusError, match=r"masks have the shape \[40, 2\]"):
        policy(obs.numpy(), masks[:, :2])


def test_numbers_stay_within_the_bounds_of_the_env(tmp_path: Path, obs: torch.Tensor) -> None:
    network, mean = body(), nn.Linear(16, 2)
    action = BoxActions(LOW, HIGH)
    low, high = torch.tensor(LOW), torch.tensor(HIGH)
    # Far enough out that bounds are met.
    with torch.no_grad():
        mean.weight.mul_(4)
    out = mean(network(obs))
    squashed = save(tmp_path / "squashed", "squashed", action, network, mean=mean)
    expected = low + (out.tanh() + 1) / 2 * (high - low)
    np.testing.assert_allclose(squashed(obs.numpy()), expected.detach().numpy(), atol=1e-5)
    gaussian = save(tmp_path / "gaussian", "gaussian", action, network, mean=mean)
    clipped = out.clamp(low, high).detach().numpy()
    np.testing.assert_allclose(gaussian(obs.numpy()), clipped, atol=1e-5)
    assert gaussian(obs[0].numpy()).shape == (2,)
    with pytest.raises(LudusError, match="takes no masks"):
        gaussian(obs.numpy(), np.ones((40, 2), bool))


def test_unbounded_actions_pass_as_they_are(tmp_path: Path, obs: torch.Tensor) -> None:
    network, mean = body(), nn.Linear(16, 1)
    action = BoxActions(np.full(1, -np.inf, np.float32), np.full(1, np.inf, np.float32))
    policy = save(tmp_path / "policy", "gaussian", action, network, mean=mean)
    np.testing.assert_allclose(
        policy(obs.numpy()), mean(network(obs)).detach().numpy(), rtol=1e-4, atol=1e-5
    )


@pytest.mark.covers("004-S7")
def test_a_policy_runs_where_neither_torch_nor_gymnasium_is_there(
    tmp_path: Path, obs: torch.Tensor
) -> None:
    network, logits = body(), nn.Linear(16, 4)
    normal = Normalisation(
        np.full((3, 2), 0.5, np.float32), np.full((3, 2), 2.0, np.float32), clip=1.5
    )
    save_policy(
        tmp_path / "policy",
        kind="categorical",
        obs_shape=(3, 2),
        action=DiscreteActions(4, start=1),
        body=steps(network),
        heads={"logits": steps(logits)},
        normalisation=normal,
    )
    expected = logits(network(((obs - 0.5) * 2).clamp(-1.5, 1.5)))
    np.save(tmp_path / "obs.npy", obs.numpy())
    code = f"""
import json, sys
sys.modules["torch"] = sys.modules["gymnasium"] = None
import numpy as np
from ludus.nn.export.numpy_policy import NumpyPolicy
policy = NumpyPolicy.load({str(tmp_path / "policy")!r})
obs = np.load({str(tmp_path / "obs.npy")!r})
print(json.dumps([policy(obs).tolist(), policy.outputs(obs).tolist()]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    actions, outputs = json.loads(done.stdout)
    np.testing.assert_allclose(outputs, expected.detach().numpy(), rtol=1e-4, atol=1e-5)
    assert actions == (expected.argmax(1) + 1).tolist()


def test_a_policy_that_was_trained_with_masks_does_not_act_without(tmp_path: Path) -> None:
    logits = nn.Linear(16, 3)
    save_policy(
        tmp_path / "policy",
        kind="categorical",
        obs_shape=(3, 2),
        action=DiscreteActions(3, start=0),
        body=steps(body()),
        heads={"logits": steps(logits)},
        has_masks=True,
    )
    policy, obs = NumpyPolicy.load(tmp_path / "policy"), np.zeros((3, 2), np.float32)
    with pytest.raises(LudusError, match=r"some actions are forbidden; call policy\(obs, masks\)"):
        policy(obs)
    for allowed in range(3):
        assert policy(obs, np.arange(3) == allowed) == allowed


def test_observations_of_another_shape_are_refused(tmp_path: Path) -> None:
    policy = save(tmp_path / "p", "greedy", DiscreteActions(2, 0), body(), q=nn.Linear(16, 2))
    with pytest.raises(LudusError, match=r"shape \[3, 2\].*got \[6\]"):
        policy(np.zeros(6))


def test_a_policy_that_was_changed_or_makes_no_sense_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "policy"
    save(path, "greedy", DiscreteActions(2, 0), body(), q=nn.Linear(16, 2))
    note = json.loads((path / "policy.json").read_text())
    for change in ({"kind": "sampled"}, {"body": [{"step": "System"}]}, {"heads": {}}, {"clip": 1}):
        (path / "policy.json").write_text(json.dumps({**note, **change}))
        with pytest.raises(CheckpointError, match="does not describe a policy"):
            NumpyPolicy.load(path)
    (path / "policy.json").write_text(json.dumps({**note, "format": 99}))
    with pytest.raises(CheckpointError, match="version"):
        NumpyPolicy.load(path)
    (path / "policy.json").write_text("[" * 100_000)
    with pytest.raises(CheckpointError, match="JSON"):
        NumpyPolicy.load(path)
    (path / "policy.json").write_text(json.dumps(note))
    weights = bytearray((path / "weights.safetensors").read_bytes())
    weights[-1] ^= 1
    (path / "weights.safetensors").write_bytes(bytes(weights))
    with pytest.raises(CheckpointError, match="changed since"):
        NumpyPolicy.load(path)


def test_a_kind_wants_its_own_heads(tmp_path: Path) -> None:
    with pytest.raises(LudusError, match="greedy policy has the heads"):
        save(tmp_path / "p", "greedy", DiscreteActions(2, 0), body(), logits=nn.Linear(16, 2))
