"""What `ludus export --format torch|onnx` writes computes what the run's own network does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ludus
from ludus.cli.exporting import export_run
from ludus.core.abilities import Program
from ludus.core.errors import LudusError, StorageError
from ludus.nn.export.programs import write_program
from tests.arena.small import small_arena
from tests.command_line import small_config
from tests.games.dqn.small import small_dqn
from tests.loading.test_policy import CNN
from tests.rl.known_problems import problem
from tests.rl.small import small

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


def by_onnx(path: Path, **inputs: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(str(path))
    assert [one.name for one in session.get_inputs()] == [*inputs]
    (found,) = session.run(None, inputs)
    return found


def by_torch(path: Path, *inputs: np.ndarray) -> np.ndarray:
    program = torch.export.load(str(path)).module()
    return program(*map(torch.from_numpy, inputs)).detach().numpy()


class Convolutions(nn.Module):
    """A network of a script, with batch norm and a loop in its forward."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Conv2d(3, 2, 3)])
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.head(self.dropout(x).mean((2, 3)))


def test_a_network_of_convolutions_of_a_script_is_the_same_in_torch_and_onnx(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(
        "import ludus, torch\n"
        "from tests.command_line import small_config\n"
        "from tests.loading.test_programs import Convolutions\n"
        "changes = {'evaluate_every_epochs': 0, 'evaluation.patience': None, 'evaluation.keep': 0}\n"
        "data = torch.utils.data.TensorDataset(torch.randn(12, 1, 8, 8), torch.arange(12) % 3)\n"
        "trainer = ludus.Trainer(small_config(data=None, model=None, max_epochs=1, **changes),"
        " train_loader=data)\n"
        "trainer.set_model(Convolutions())\n"
        "trainer.fit()\n"
    )
    from ludus.session.script import run_as_main

    run_as_main("train.py", [])
    network = ludus.load("small", "last", network=Convolutions)
    images = np.random.default_rng(0).normal(size=(7, 1, 8, 8)).astype(np.float32)
    wanted = network(torch.from_numpy(images)).detach().numpy()
    with pytest.raises(LudusError, match=r"were given by its script.*give example inputs"):
        export_run("runs/small", None, model="last", network=Convolutions, to="onnx")
    for format_, run in (("onnx", lambda path: by_onnx(path, input=images)),
                         ("torch", lambda path: by_torch(path, images))):  # fmt: skip
        path = export_run("runs/small", None, model="last", script="train.py", to=format_)  # type: ignore[arg-type]
        np.testing.assert_allclose(run(path), wanted, rtol=1e-4, atol=1e-5)  # type: ignore[no-untyped-call]
        # A file that ludus wrote is replaced.
        export_run("runs/small", path, model="last", script="train.py", to=format_)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["dqn", "iqn", "sac", "ppo"])
def test_a_policy_normalises_observations_in_its_program(kind: str, tmp_path: Path) -> None:
    normalise = {"observations": True, "rewards": False, "clip": 0.5}
    ludus.build_trainer(small(kind, normalise=normalise)).fit(root=str(tmp_path), name=kind)
    policy = ludus.load(tmp_path / kind, expected=ludus.Policy)
    path = export_run(str(tmp_path / kind), None, to="torch")
    obs = np.random.default_rng(0).normal(size=(9, *policy.spec.obs_shape)).astype(np.float32) * 9
    np.testing.assert_allclose(by_torch(path, obs), policy.act(obs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["tests_pair", "tests_images"])
def test_policies_of_masks_and_of_images_are_the_same_in_onnx(kind: str, tmp_path: Path) -> None:
    is_image = kind == "tests_images"
    env = problem(kind, has_masks=not is_image)
    config = small("ppo").replace(env=env, **({"network": CNN} if is_image else {}))
    ludus.build_trainer(config).fit(root=str(tmp_path), name="run")
    policy = ludus.load(tmp_path / "run", "last", expected=ludus.Policy)
    path = export_run(str(tmp_path / "run"), None, model="last", to="onnx")
    rng = np.random.default_rng(0)
    if is_image:
        obs = rng.integers(0, 256, (6, 8, 8, 1)).astype(np.uint8)
        found = by_onnx(path, observation=obs)
        np.testing.assert_allclose(found, policy.act(obs), rtol=1e-4, atol=1e-5)
        return
    obs = rng.normal(size=(6, 4)).astype(np.float32)
    masks = rng.random((6, 5)) < 0.7
    masks[:, [0, 3]] = True
    found = by_onnx(path, observation=obs, action_masks=masks)
    assert (found == policy.act(obs, masks)).all()


def test_each_role_of_a_game_is_a_program_of_its_own(tmp_path: Path) -> None:
    ludus.build_trainer(small_dqn()).fit(root=str(tmp_path), name="two")
    folder = export_run(str(tmp_path / "two"), tmp_path / "out", model="last", to="torch")
    assert sorted(one.name for one in folder.iterdir()) == ["agent.pt2", "host.pt2"]
    trainer: Any = ludus.build_trainer(small_dqn())
    host = ludus.load(tmp_path / "two", "last", agent="host")
    obs = torch.randn(5, trainer.fused_game.observation_size("host"))
    wanted = host.act(obs, None, torch.Generator())
    assert (by_torch(folder / "host.pt2", obs.numpy()) == wanted.numpy()).all()


def test_agents_that_take_rows_of_a_protocol_are_no_program(tmp_path: Path) -> None:
    ludus.build_trainer(small_arena()).fit(root=str(tmp_path), name="arena")
    with pytest.raises(LudusError, match="takes no plain tensors, so it is no program"):
        export_run(str(tmp_path / "arena"), None, to="onnx")


class Eigenvalues(nn.Module):
    """Computes what ONNX has no operator for."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.linalg.eigvals(x[:, None] * x[:, :, None]).real


class Branches(nn.Module):
    """Decides by the values of its inputs."""

    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


def test_what_onnx_or_torch_cannot_express_is_one_sentence(tmp_path: Path) -> None:
    inputs = {"input": torch.ones(2, 3)}
    with pytest.raises(LudusError) as caught:
        write_program(Program(Eigenvalues(), inputs, "output"), tmp_path / "e.onnx", "onnx")
    assert str(caught.value) == (
        "the network Eigenvalues computes aten.linalg_eig, for which ONNX has no operator; export it"
        " with --format torch, or compute it otherwise"
    )
    with pytest.raises(
        LudusError, match=r"Branches cannot be exported, for its forward is not one"
    ):
        write_program(Program(Branches(), inputs, "output"), tmp_path / "b.pt2", "torch")
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_somebody_else_is_not_replaced(tmp_path: Path) -> None:
    program = Program(nn.Linear(3, 2), {"input": torch.ones(2, 3)}, "output")
    for format_, name in (("torch", "mine.pt2"), ("onnx", "mine.onnx")):
        (tmp_path / name).write_bytes(b"mine")
        with pytest.raises(StorageError, match="was not written by ludus"):
            write_program(program, tmp_path / name, format_)  # type: ignore[arg-type]


def test_a_supervised_run_by_config_is_traced_with_the_shape_of_its_data(tmp_path: Path) -> None:
    ludus.build_trainer(small_config()).fit(root=str(tmp_path))
    path = export_run(str(tmp_path / "small"), tmp_path / "net", to="torch")
    assert path == tmp_path / "net.pt2"
    rows = torch.randn(5, 13)
    wanted = ludus.load(tmp_path / "small")(rows).detach().numpy()
    np.testing.assert_allclose(by_torch(path, rows.numpy()), wanted, rtol=1e-5, atol=1e-6)
