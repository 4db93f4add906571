"""A committee learns member by member, speaks with one voice, and is kept and measured as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import ludus
from ludus.active.models.committee import Members, make_committee
from ludus.config.registry import find
from ludus.core.errors import ConfigError
from ludus.core.runtime import InMemoryRuntime
from ludus.nn.model import Model
from tests.active.strategies.small import ran, section, small

INPUTS = torch.randn(6, 13, generator=torch.Generator().manual_seed(0))


def members_of(trainer: object) -> list[torch.nn.Module]:
    return list(trainer.model.module.members)  # type: ignore[attr-defined]


def test_members_begin_and_end_with_other_weights() -> None:
    trainer = ran(small(strategy=section("committee_kl", members=3), max_rounds=1))
    firsts = [next(one.parameters()).detach() for one in members_of(trainer)]
    assert not torch.equal(firsts[0], firsts[1])
    assert not torch.equal(firsts[1], firsts[2])


def test_each_member_learns_as_it_would_alone() -> None:
    alone = small("uniform", max_rounds=1, model={**small().model.model_dump(), "dropout": 0.0})
    # By plain gradients: Adam would hide how long they are.
    sgd = {"kind": "sgd", "momentum": 0.0, "nesterov": False, "weight_decay": 0.0}
    alone = alone.replace(max_grad_norm=None, optimizer={**sgd, "learning_rate": 0.1})
    together = alone.replace(strategy=section("committee_vote_entropy", members=2, shortlist=None))
    one, both = ran(alone), ran(together)
    expected = [p.detach() for p in one.model.module.parameters()]
    found = [p.detach() for p in members_of(both)[0].parameters()]
    for own, member in zip(expected, found, strict=True):
        torch.testing.assert_close(member, own, rtol=1e-4, atol=1e-6)


def test_a_committee_says_the_mean_of_what_its_members_say() -> None:
    networks = [torch.nn.Linear(13, 3) for _ in range(3)]
    voice = Members(list(networks), is_binary=False)
    expected = torch.stack([one(INPUTS).softmax(1) for one in networks]).mean(0)
    torch.testing.assert_close(voice(INPUTS).softmax(1), expected)
    single = [torch.nn.Linear(13, 1) for _ in range(3)]
    mean = torch.stack([one(INPUTS).sigmoid() for one in single]).mean(0)
    torch.testing.assert_close(Members(list(single), is_binary=True)(INPUTS).sigmoid(), mean)


def test_the_loss_that_is_evaluated_is_that_of_the_whole() -> None:
    model = make_committee(Model(torch.nn.Linear(13, 3), loss="cross_entropy"), 2)
    targets = torch.tensor([0, 1, 2, 0, 1, 2])
    said = model.module(INPUTS)
    step = model.evaluation_step((INPUTS, targets), 0)
    torch.testing.assert_close(step["loss"], torch.nn.functional.cross_entropy(said, targets))
    assert int(step["correct"]) == int((said.argmax(1) == targets).sum())


def test_the_loss_that_is_learnt_from_is_told_as_a_mean_and_moves_each_member_by_its_own() -> None:
    model = make_committee(Model(torch.nn.Linear(13, 3), loss="cross_entropy"), 3)
    targets = torch.tensor([0, 1, 2, 0, 1, 2])
    losses = [
        torch.nn.functional.cross_entropy(said, targets) for said in model.module.each(INPUTS)
    ]
    loss = model.training_step((INPUTS, targets), 0)["loss"]
    torch.testing.assert_close(loss, torch.stack(losses).mean())
    weights = [one.weight for one in model.module.members]
    expected = torch.autograd.grad(torch.stack(losses).sum(), weights)
    torch.testing.assert_close(torch.autograd.grad(loss, weights), expected)


def test_a_committee_learns_and_its_best_weights_can_be_evaluated_again(tmp_path: Path) -> None:
    best = {"evaluation.metric": "validation/epoch_loss", "evaluation.keep": 1}
    config = small(
        strategy=section("committee_kl", members=2), **best, max_rounds=3, max_epochs=30,
        **{"optimizer.learning_rate": 0.02},
    )  # fmt: skip
    trainer = ludus.build_trainer(config)
    result = trainer.fit(root=str(tmp_path), name="committee")
    assert result.status == "finished"
    accuracy = trainer.evaluate(trainer.evaluators["test"])["test/accuracy"]
    assert accuracy > 0.8
    again = ludus.build_trainer(config)
    again.fit(root=str(tmp_path), name="committee", resume=True)
    assert again.evaluate(again.evaluators["test"])["test/accuracy"] == pytest.approx(accuracy)


def sharing(members: list[nn.Module], given: nn.Module) -> list[list[str]]:
    """Return, for each member, the parameters that are those of the given network."""
    wanted = dict(given.named_parameters())
    return [
        [name for name, one in member.named_parameters() if torch.equal(one, wanted[name])]
        for member in members
    ]


def layered() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(13, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))


def test_a_frozen_body_is_the_same_in_all_members_and_stays_so() -> None:
    net = layered()
    net[0].requires_grad_(False)
    first = net[0].weight.clone()
    trainer = ludus.build_trainer(
        small(strategy=section("committee_kl", members=3), model=None, engine="eager", max_rounds=1)
    )
    trainer.set_model(net)
    trainer.prepare(max_steps=None)
    assert [one[:2] for one in sharing(members_of(trainer), net)] == [["0.weight", "0.bias"]] * 3
    heads = [one[3].weight for one in members_of(trainer)]  # type: ignore[index]
    assert not torch.equal(heads[1], heads[2])
    trainer.fit(runtime=InMemoryRuntime)
    assert all(torch.equal(one[0].weight, first) for one in members_of(trainer))  # type: ignore[index]


def test_a_layer_that_is_frozen_in_part_keeps_that_part() -> None:
    net = layered()
    net[3].bias.requires_grad_(False)
    made = make_committee(Model(net, loss="cross_entropy"), 2)
    assert "3.bias" in sharing(list(made.module.members), net)[1]
    assert "3.weight" not in sharing(list(made.module.members), net)[1]


def test_members_of_a_network_with_loaded_weights_differ_in_the_last_layer_alone(
    tmp_path: Path,
) -> None:
    place = tmp_path / "kept"
    Model(layered()).save_model(place)
    loaded = Model(layered(), loss="cross_entropy")
    loaded.load_model(place)
    assert loaded.is_loaded
    trainer = ludus.build_trainer(
        small(strategy=section("committee_kl", members=2), model=None, engine="eager")
    )
    trainer.set_model(loaded)
    trainer.prepare(max_steps=None)
    body = ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert sharing(members_of(trainer), loaded.module)[1] == body
    fresh = make_committee(Model(layered(), loss="cross_entropy"), 2)
    assert "0.weight" not in sharing(list(fresh.module.members), layered())[1]


def test_members_of_a_network_with_a_new_head_differ_in_the_head_alone() -> None:
    net = layered()
    trainer = ludus.build_trainer(
        small(strategy=section("committee_kl", members=2), model=None, engine="eager", new_head=3)
    )
    trainer.set_model(net)
    trainer.prepare(max_steps=None)
    assert sharing(members_of(trainer), net)[1] == ["0.weight", "0.bias", "1.weight", "1.bias"]


def test_a_network_that_is_frozen_whole_makes_no_committee() -> None:
    net = layered().requires_grad_(False)
    with pytest.raises(
        ConfigError, match="every layer of Sequential that could be reinitialised is frozen"
    ):
        make_committee(Model(net, loss="cross_entropy"), 2)


def test_a_committee_of_a_trained_network_whose_head_is_listed_first_is_refused() -> None:
    class HeadFirst(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head, self.body = nn.Linear(4, 3), nn.Linear(13, 4)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.head(self.body(x).relu())
            return out

    model = Model(HeadFirst(), loss="cross_entropy")
    model.is_loaded = True
    trainer = find("trainer", "active")(small("committee_kl", model=None), model=model)
    with pytest.raises(ConfigError, match="calls head last; let its __init__ make the head last"):
        trainer.fit(runtime=InMemoryRuntime)


def test_a_committee_whose_members_would_be_equal_is_refused() -> None:
    class Still(nn.Linear):
        def reset_parameters(self) -> None:
            nn.init.constant_(self.weight, 0.1)
            nn.init.zeros_(self.bias)

    trainer = find("trainer", "active")(small("committee_kl", model=None), model=Still(13, 3))
    with pytest.raises(ConfigError, match="all members of the committee are the same"):
        trainer.fit(runtime=InMemoryRuntime)
