"""Groups of parameters on a GPU: frozen under a captured graph, without waiting; two devices at once."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ludus.nn.engines.choice import ENGINES
from ludus.nn.groups import Group
from ludus.nn.learner import Learner
from tests.nn.test_groups import ADAM, BODY, SGD, Net, inputs

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    # The first use of cuBLAS in a process may warn, and any of these tests may be it.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore:TensorFloat32:UserWarning"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning"),
]
CUDA = torch.device("cuda")


class Owner:
    """An update of three groups on the GPU."""

    def __init__(self) -> None:
        groups = (BODY, Group("top", ("head",), rate=2.0))
        options: dict[str, Any] = {"max_grad_norm": 0.5, "ema_decay": 0.9, "groups": groups}
        self.learner = Learner(Net().to(CUDA), ADAM.replace(kind="adamw"), **options)
        self.rate = torch.tensor(0.1, device=CUDA)

    def learn(self, batch: Tensor) -> Tensor:
        def loss_fn(forward: Any) -> tuple[Tensor, Tensor]:
            return (forward(batch) - 1).square().mean(), batch.new_zeros(())

        return self.learner.step(loss_fn, self.rate)[1]


@pytest.mark.parametrize("name", ["eager", "compiled", "graph"])
def test_a_group_is_frozen_and_freed_under_every_engine(name: Any) -> None:
    plain, executed = Owner(), Owner()
    call = ENGINES[name](executed.learn, CUDA)
    for number in range(12):
        for owner in (plain, executed):
            owner.learner.set_frozen("body", 5 <= number < 9)
        before = executed.learner.weights()["body.0.weight"].clone()
        plain.learn(inputs(number).to(CUDA))
        call(inputs(number).to(CUDA))
        is_still = torch.equal(executed.learner.weights()["body.0.weight"], before)
        assert is_still is (5 <= number < 9)
    found, expected = executed.learner.state_dict(), plain.learner.state_dict()
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)


def test_a_step_of_groups_never_waits_for_the_gpu() -> None:
    owner, batch = Owner(), inputs(0).to(CUDA)
    owner.learn(batch)
    torch.cuda.set_sync_debug_mode("error")
    try:
        owner.learn(batch)
        owner.learner.set_frozen("body", True)
        before = owner.learner.weights()["body.0.weight"].clone()
        owner.learn(batch)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.equal(owner.learner.weights()["body.0.weight"], before)


class TwoPlaces(nn.Module):
    """Its first layer on the CPU, its second on the GPU."""

    def __init__(self, second: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(3, 8), nn.Linear(8, 2).to(second)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.second(self.first(x).tanh().to(self.second.weight.device))
        return out


@pytest.mark.parametrize("config", [ADAM, SGD.replace(momentum=0.9)], ids=["adam", "sgd"])
@pytest.mark.parametrize("groups", [(), (Group("one", ("first",), rate=0.5),)], ids=["all", "two"])
@pytest.mark.parametrize("share", [None, 0.5])
def test_a_network_on_two_devices_learns_as_on_one(config: Any, groups: Any, share: Any) -> None:
    options: dict[str, Any] = {"max_grad_norm": 0.2, "ema_decay": 0.9, "groups": groups}
    here, there = (Learner(TwoPlaces(place), config, **options) for place in ("cpu", "cuda"))
    rate = torch.tensor(0.1)
    for number in range(6):
        for learner in (here, there):
            learner.step(
                lambda f, n=number: ((f(inputs(n)).cpu() - 1).square().mean(), ()),
                rate,
                grad_scale=None if share is None else torch.tensor(share),
            )
    found, expected = (
        {name: weight.cpu() for name, weight in copy.deepcopy(learner.weights()).items()}
        for learner in (there, here)
    )
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)
    assert len(there.flat.vectors) == 2
