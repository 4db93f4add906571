"""The losses of agents in a sequence: right to the second derivative, clipped as PPO's, moved by one step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor

import ludus
from ludus.arena.objectives.ppo import ClipPpo
from ludus.arena.objectives.spg import Spg, _parameters, learning_groups
from ludus.arena.objectives.stackelberg import gradient, own_gradients
from ludus.arena.playing.distribution import TurnDistribution
from ludus.config.sections import validate
from ludus.core.errors import ConfigError
from tests.arena.objectives.rows import gradients, prepared, rows_of
from tests.arena.protocols.made import protocol, section
from tests.arena.sections import ALWAYS, EVEN_RATES, NEVER, parts
from tests.arena.small import MLP, example, small_arena

CG = {"kind": "conjugate_gradient", "iterations": 3, "rho": 0.5}
LOLA = {"kind": "lola", "lookahead_rate": 0.5}
SOS = {"kind": "sos", "lookahead_rate": 0.5, "scaling": 0.5, "threshold": 0.1}
CLIP = {"clip": 0.2}
VARIANTS: dict[str, dict[str, Any]] = {
    "spg": {"kind": "spg", "inverse_hessian": CG},
    "pspg": {"kind": "pspg", "inverse_hessian": CG, **CLIP},
    "lola": LOLA,
    "pola": {**LOLA, "kind": "pola", **CLIP},
    "sos": SOS,
    "psos": {**SOS, "kind": "psos", **CLIP},
}
PLAIN: dict[str, Any] = {"spg.normalise_advantage": False, "spg.entropy_coef": 0.0}
every_variant = pytest.mark.parametrize("variant", VARIANTS)


def made(variant: str, **changed: Any) -> Any:
    return prepared("spg", **{"spg.variant": VARIANTS[variant], **PLAIN, **changed})


def enumerated(
    first: Tensor, second: Tensor, gains: Tensor, *, at_once: bool, gamma: float = 1.0
) -> Any:
    """Return all pairs of decisions once, as episodes of two steps, and the distribution of them.

    Under logits of 0 all are equally likely, so that means over them are expectations. `second` is a table
    by the first decision; where both decide at once it has one row. The gains are those of the last step.
    """
    one, other = (
        grid.flatten() for grid in torch.meshgrid(torch.arange(3), torch.arange(3), indexing="ij")
    )
    logits_ETA3 = torch.zeros(9, 2, 2, 3, dtype=torch.float64)
    mask_ETA = torch.zeros(9, 2, 2, dtype=torch.bool)
    action_ETAK = torch.zeros(9, 2, 2, 2, dtype=torch.int64)
    step = 0 if at_once else 1
    mask_ETA[:, 0, 0] = mask_ETA[:, step, 1] = True
    action_ETAK[:, 0, 0, 0], action_ETAK[:, step, 1, 0] = one, other
    row = torch.zeros_like(one) if at_once else one
    logits_ETA3 = logits_ETA3.index_put(
        (torch.arange(9), torch.tensor(0), torch.tensor(0)), first.expand(9, 3)
    )
    logits_ETA3 = logits_ETA3.index_put(
        (torch.arange(9), torch.tensor(step), torch.tensor(1)), second[row]
    )
    to_go_T = gamma ** torch.arange(1, -1, -1).double()
    gain_ETA1 = gains[one, other][:, None, :, None] * to_go_T[:, None, None]
    agents = {
        "decision_mask": mask_ETA, "message_mask": torch.zeros(9, 2, 2, 1, dtype=torch.bool),
        "action": action_ETAK, "advantage": gain_ETA1,
        "action_log_prob": torch.where(mask_ETA, torch.tensor(1 / 3).double().log(), 0.0),
    }  # fmt: skip
    td = TensorDict(
        {
            "agents": {name: value.flatten(0, 1) for name, value in agents.items()},
            "mask": torch.ones(18).bool(),
        },
        batch_size=[18],
    )
    now = TurnDistribution(
        logits_ETA3.flatten(0, 1), torch.zeros(18, 2, 1, 2).double(),
        td["agents", "decision_mask"], td["agents", "message_mask"],
    )  # fmt: skip
    return td, now


@pytest.mark.covers("002-S1")
@pytest.mark.parametrize("gamma", [1.0, 0.9])
@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("variant", ["spg", "pspg"])
def test_losses_have_the_derivatives_of_the_expected_return_mixed_ones_too(
    variant: str, at_once: bool, gamma: float
) -> None:
    loss_module = made(variant, **{"rl.gamma": gamma}).loss_module
    gains = torch.randn(3, 3, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows = 1 if at_once else 3

    def estimated(first: Tensor, second: Tensor, name: str) -> Tensor:
        td, now = enumerated(first, second, gains, at_once=at_once, gamma=gamma)
        found: Tensor = loss_module.losses(td, now)[name]
        return found

    def exact(first: Tensor, second: Tensor, name: str) -> Tensor:
        joint = first.softmax(-1)[:, None] * second.softmax(-1).expand(3, 3)
        return -gamma * (joint * gains[..., ["verifier", "prover"].index(name)]).sum()

    at = torch.zeros(3).double(), torch.zeros(rows, 3).double()
    for name in ("verifier", "prover"):
        for derive in (torch.autograd.functional.jacobian, torch.autograd.functional.hessian):
            ours: Any = derive(lambda *at: estimated(*at, name), at)  # noqa: B023
            theirs: Any = derive(lambda *at: exact(*at, name), at)  # noqa: B023
            for one, other in zip(_flat(ours), _flat(theirs), strict=True):
                assert float(other.abs().max()) > 0.01
                assert torch.allclose(one, other, atol=1e-9)


def _flat(found: Any) -> list[Tensor]:
    return [found] if isinstance(found, Tensor) else [leaf for one in found for leaf in _flat(one)]


def moved_away(trainer: Any) -> None:
    """Move the agents away from those that acted, so that ratios are not 1."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in trainer.agents.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))


def losses_of(trainer: Any, rows: TensorDictBase) -> dict[str, Tensor]:
    loss_module: Spg = trainer.loss_module
    now = loss_module.actor_network.get_dist(rows.copy())
    return dict(loss_module.losses(rows, now))


def test_the_gradient_of_a_clipped_loss_is_ppos() -> None:
    trainer = made("pspg")
    rows = rows_of(trainer)
    moved_away(trainer)
    ppo = example("vanilla_ppo").replace(
        **{"ppo.normalise_advantage": False, "ppo.entropy_coef": 0.0}
    )
    theirs = ClipPpo(trainer.agents, trainer.config.rl, ppo.ppo)(rows.copy())
    assert 0 < float(theirs["clip_fraction"]) < 1
    turns = rows["agents", "decision_mask"] | rows["agents", "message_mask"].any(-1)
    expected = gradients(trainer, theirs["loss_objective"] * turns.sum() / 8)
    for name, loss in losses_of(trainer, rows).items():
        own = {key: one for key, one in gradients(trainer, loss).items() if f".{name}." in key}
        assert sum(float(one.norm()) for one in own.values()) > 0.01
        for key, found in own.items():
            assert torch.allclose(found, expected[key], atol=1e-5), key


@every_variant
def test_the_gradient_of_what_is_returned_is_each_agents_direction(variant: str) -> None:
    trainer = made(variant)
    rows = rows_of(trainer)
    loss_module: Spg = trainer.loss_module
    found = loss_module(rows)
    losses = losses_of(trainer, rows)
    owners = {
        name: list(trainer.agents.member(name).parameters()) for name in ("verifier", "prover")
    }
    directions, _ = loss_module._directions(losses, owners, own_gradients(losses, owners))
    for name, own in owners.items():
        assert torch.equal(gradient(found["loss_objective"], own), directions[name])
    values = torch.stack([loss.detach() for loss in losses.values()])
    assert float(found["loss_objective"].detach()) == pytest.approx(float(values.sum()))
    # The last of the sequence has nobody to reckon with; the first goes another way than alone.
    assert torch.equal(directions["prover"], gradient(losses["prover"], owners["prover"]))
    alone = gradient(losses["verifier"], owners["verifier"])
    away = float((directions["verifier"] - alone).norm())
    assert away > 1e-9
    assert float(found["response_norm"]) == pytest.approx(away, rel=1e-4)
    assert ("shaping_share" in found.keys()) == variant.endswith("sos")  # noqa: SIM118


@every_variant
def test_one_step_of_plain_descent_goes_that_way_on_flat_parameters(variant: str) -> None:
    sgd = {
        "kind": "sgd",
        "learning_rate": 1.0,
        "momentum": 0.0,
        "nesterov": False,
        "weight_decay": 0.0,
    }
    trainer = made(variant, optimizer=sgd, engine="eager", **{"rl.minibatch_size": 16})
    rows = rows_of(trainer)
    terms = trainer.loss_module(rows)
    expected = gradients(trainer, terms["loss_objective"] + terms["loss_critic"])
    named = dict(trainer.agents.named_parameters())
    before = {name: one.detach().clone() for name, one in named.items()}
    columns = [rows[tuple(name.split("/"))] for name in trainer.update.learned.names]
    trainer.update.step(columns, learning_rate=1.0)
    for name, one in named.items():
        assert torch.allclose(before[name] - one.detach(), expected[name], atol=1e-6), name


def agents(verifier: Any, prover: Any) -> dict[str, Any]:
    return {
        "verifier": parts(MLP, update_schedule=verifier),
        "prover": parts(MLP, update_schedule=prover),
    }


def test_followers_that_never_learn_are_not_reckoned_with() -> None:
    assert made("spg").loss_module.groups == [["verifier"], ["prover"]]
    trainer = made("spg", agents=agents(ALWAYS, NEVER))
    assert trainer.loss_module.groups == [["verifier"]]
    assert float(trainer.loss_module(rows_of(trainer))["response_norm"]) == 0.0
    leader = made("spg", agents=agents(NEVER, ALWAYS))
    assert leader.loss_module.groups == [["prover"]]
    # One that learns in other iterations will answer then.
    late = {"kind": "contiguous_periodic", "period": 2, "start": 1, "stop": 2}
    assert made("spg", agents=agents(ALWAYS, late)).loss_module.groups == [["verifier"], ["prover"]]


def test_an_agent_whose_rates_are_all_0_is_nobody_to_reckon_with_nor_is_a_part_of_rate_0() -> None:
    still = parts(MLP, learning_rate_factors=dict.fromkeys(EVEN_RATES, 0.0))
    assert made("spg", agents={"verifier": parts(MLP), "prover": still}).loss_module.groups == [
        ["verifier"]
    ]
    half = parts(MLP, learning_rate_factors={**EVEN_RATES, "body": 0.0})
    trainer = made("spg", agents={"verifier": parts(MLP), "prover": half})
    moved = _parameters(trainer.agents, "prover")
    prover = trainer.agents.member("prover")
    heads = [*prover.policy_head.parameters(), *prover.value_head.parameters()]
    assert {id(one) for one in moved} == {id(one) for one in heads}


def test_agents_without_parameters_are_left_out_of_the_sequence() -> None:
    trainer = made("spg")
    for parameter in trainer.agents.member("verifier").parameters():
        parameter.requires_grad_(False)
    sequence = [["verifier"], ["prover"]]
    assert learning_groups(sequence, trainer.agents, []) == [["prover"]]


def test_minibatches_are_of_whole_episodes_in_their_order() -> None:
    trainer = made("spg", **{"rl.minibatch_size": 4})
    found = torch.cat([trainer._minibatches(0, 0, index) for index in range(4)])
    assert sorted(found.tolist()) == list(range(16))
    assert torch.equal(found[::2] + 1, found[1::2])
    assert set((found[::2] % 2).tolist()) == {0}
    assert found.tolist() != list(range(16))


def test_a_minibatch_that_would_cut_an_episode_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"'rl.minibatch_size' is 1, but spg learns from whole epis"
    ):
        small_arena("spg", **{"rl.minibatch_size": 1})


def test_a_shared_body_is_refused() -> None:
    shared = {"verifier": parts(MLP), "prover": parts(MLP, shares_body_of="verifier")}
    with pytest.raises(ConfigError, match="under spg each agent moves parameters of its own"):
        small_arena("spg", agents=shared)


@pytest.mark.parametrize("variant", ["spg", "lola", "sos"])
def test_a_variant_that_does_not_clip_is_refused_episodes_that_other_weights_played(
    variant: str,
) -> None:
    stale = {"spg.variant": VARIANTS[variant], "rl.num_epochs": 2}
    clipped = {"spg": "pspg", "lola": "pola", "sos": "psos"}[variant]
    with pytest.raises(ConfigError, match=f"set it to 1, or take {clipped}, which clips"):
        small_arena("spg", **stale)
    small_arena("spg", **{**stale, "spg.variant": VARIANTS[clipped]})


def test_second_derivatives_are_not_compiled() -> None:
    with pytest.raises(ConfigError, match="'engine' is compiled, but spg takes second derivatives"):
        small_arena("spg", engine="compiled")


def test_the_order_of_who_leads_can_be_given() -> None:
    given = {"spg.stackelberg_sequence": [["prover"], ["verifier"]]}
    trainer = made("spg", **given)
    assert trainer.loss_module.groups == [["prover"], ["verifier"]]
    losses = losses_of(trainer, rows := rows_of(trainer))
    found = trainer.loss_module(rows)["loss_objective"]
    for name, leads in (("prover", True), ("verifier", False)):
        own = list(trainer.agents.member(name).parameters())
        is_alone = torch.equal(gradient(found, own), gradient(losses[name], own))
        assert is_alone == (not leads)
    together = made("spg", **{"spg.stackelberg_sequence": [["prover", "verifier"]]})
    assert float(together.loss_module(rows_of(together))["response_norm"]) == 0.0


@pytest.mark.parametrize(
    "sequence", [[["verifier"]], [["verifier"], ["prover", "prover"]], [["x"]]]
)
def test_an_order_that_does_not_hold_each_agent_once_is_refused(sequence: list[list[str]]) -> None:
    with pytest.raises(
        ConfigError, match="must hold each agent of the protocol once: verifier, pro"
    ):
        small_arena("spg", **{"spg.stackelberg_sequence": sequence})


def test_a_longer_sequence_is_learned_from_its_first_group_to_its_last() -> None:
    known = small_arena("spg").model_dump()
    handler = protocol("zero_knowledge")
    known |= {
        "agents": {name: parts(MLP) for name in handler.agent_names},
        "protocol": section("zero_knowledge"),
        "engine": "eager",
    }
    known["rl"]["minibatch_size"] = 8 * handler.max_message_rounds
    known["spg"]["variant"]["inverse_hessian"]["iterations"] = 1
    trainer: Any = ludus.build_trainer(validate(type(small_arena("spg")), known, source="the test"))
    trainer.prepare(max_steps=None)
    assert trainer.loss_module.groups == [list(group) for group in handler.stackelberg_sequence]
    rows = rows_of(trainer)
    losses = losses_of(trainer, rows)
    found = trainer.loss_module(rows)["loss_objective"]
    for level, name in enumerate(sum(handler.stackelberg_sequence, ())):
        own = [one for one in trainer.agents.member(name).parameters() if one.requires_grad]
        direction, alone = gradient(found, own), gradient(losses[name], own)
        assert torch.isfinite(direction).all()
        assert torch.equal(direction, alone) == (level == 3)
