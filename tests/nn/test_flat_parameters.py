"""Flat parameters: one vector, while the network keeps its parameters and its names."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from ludus.core.errors import ConfigError, LudusError
from ludus.nn.flat import FlatParameters, fused_pieces
from ludus.nn.swapped_weights import swapped_weights


class Tied(nn.Module):
    """Its output layer is its input layer again."""

    def __init__(self) -> None:
        super().__init__()
        self.into = nn.Embedding(5, 3)
        self.out = nn.Linear(3, 5, bias=False)
        self.out.weight = self.into.weight

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(self.into(x))
        return out


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def test_flattening_changes_no_output() -> None:
    module = network().eval()
    inputs = torch.randn(5, 3)
    before = module(inputs)
    FlatParameters(module)
    assert torch.equal(module(inputs), before)


def test_the_parameters_are_views_of_the_vector() -> None:
    module = network()
    flat = FlatParameters(module)
    assert flat.vectors[0].numel() == sum(parameter.numel() for parameter in module.parameters())
    flat.vectors[0].fill_(0.25)
    assert all(bool((parameter == 0.25).all()) for parameter in module.parameters())
    with torch.no_grad():
        module[2].bias.fill_(9.0)
    assert flat.vectors[0][-2:].tolist() == [9.0, 9.0]


def test_gradients_gather_in_the_gradient_vector() -> None:
    module = network()
    flat = FlatParameters(module)
    inputs = torch.randn(5, 3)
    module(inputs).square().sum().backward()
    once = flat.gradients[0].clone()
    assert once.abs().sum() > 0
    module(inputs).square().sum().backward()
    torch.testing.assert_close(flat.gradients[0], 2 * once)
    assert module[0].weight.grad is not None
    assert module[0].weight.grad.data_ptr() == flat.gradients[0].data_ptr()


def test_clearing_the_gradient_of_the_module_clears_the_vector() -> None:
    module = network()
    flat = FlatParameters(module)
    module(torch.randn(5, 3)).sum().backward()
    module.zero_grad(set_to_none=False)
    assert not flat.gradients[0].any()


def test_a_tied_weight_stands_in_the_vector_once() -> None:
    module = Tied()
    flat = FlatParameters(module)
    assert flat.names == ["into.weight"]
    flat.vectors[0].fill_(2.0)
    assert module.out.weight is module.into.weight
    assert bool((module.out.weight == 2.0).all())
    module(torch.tensor([1])).sum().backward()
    assert flat.gradients[0].abs().sum() > 0


def test_a_frozen_parameter_stays_out_and_stays_as_it_is() -> None:
    module = network()
    module[0].weight.requires_grad_(False)
    before = module[0].weight.clone()
    flat = FlatParameters(module)
    assert "0.weight" not in flat.names
    assert "0.bias" in flat.names
    flat.vectors[0].zero_()
    assert torch.equal(module[0].weight, before)


def test_loading_copies_and_never_rebinds() -> None:
    module = network()
    flat = FlatParameters(module)
    places = [parameter.data_ptr() for parameter in module.parameters()]
    saved = {name: torch.randn_like(tensor) for name, tensor in flat.by_name(flat.vectors).items()}
    flat.load(flat.vectors, saved)
    module.load_state_dict(network().state_dict())
    assert [parameter.data_ptr() for parameter in module.parameters()] == places
    assert torch.equal(flat.by_name(flat.vectors)["2.bias"], network()[2].bias)


def test_what_is_saved_by_name_loads_into_a_module_that_was_never_flattened() -> None:
    module = network()
    flat = FlatParameters(module)
    flat.vectors[0].add_(0.5)
    plain = network()
    plain.load_state_dict(module.state_dict())
    inputs = torch.randn(4, 3)
    assert torch.equal(plain.eval()(inputs), module.eval()(inputs))
    assert set(flat.by_name(flat.vectors)) == {name for name, _ in plain.named_parameters()}


def test_swapped_weights_are_swapped_back_even_after_an_error() -> None:
    module = network()
    flat = FlatParameters(module)
    own, other = flat.vectors[0].clone(), torch.full_like(flat.vectors[0], 3.0)

    def look_and_fail() -> None:
        with swapped_weights(flat.vectors, [other]):
            assert bool((module[0].weight == 3.0).all())
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        look_and_fail()
    assert torch.equal(flat.vectors[0], own)


def test_pieces_of_another_shape_are_refused_rather_than_stretched() -> None:
    flat = FlatParameters(nn.Linear(3, 4))
    saved = {"weight": torch.zeros(4, 3), "bias": torch.ones(1)}
    before = flat.vectors[0].clone()
    with pytest.raises(
        LudusError, match=r"'bias' is .* of \(1,\); it must be .* of \(4,\); build the model"
    ):
        flat.load(flat.vectors, saved)
    assert torch.equal(flat.vectors[0], before)


def test_pieces_of_other_names_are_refused_by_name() -> None:
    flat = FlatParameters(nn.Linear(3, 4))
    saved = {"weight": torch.zeros(4, 3), "offset": torch.ones(4)}
    with pytest.raises(LudusError, match="'bias' is missing; build the model as it was"):
        flat.load(flat.vectors, saved)


def test_a_model_with_nothing_to_train_is_refused() -> None:
    with pytest.raises(LudusError, match="no parameter to train"):
        FlatParameters(nn.Linear(2, 2).requires_grad_(False))


def test_a_model_of_two_types_has_a_vector_of_each() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double(), nn.Linear(2, 1))
    flat = FlatParameters(module)
    assert [(v.dtype, v.numel()) for v in flat.vectors] == [(torch.float32, 9), (torch.float64, 6)]
    assert flat.names == [name for name, _ in module.named_parameters()]
    assert flat.norm() == pytest.approx(float(nn.utils.get_total_norm(module.parameters())))


@pytest.mark.parametrize(
    "pieces", [[slice(0, 140_000)], [slice(0, 3), slice(7, 9), slice(9, 9000)]]
)
def test_pieces_for_the_blocks_of_a_gpu_cover_the_same_places_once(pieces: list[slice]) -> None:
    found = fused_pieces(pieces)
    places = [place for piece in found for place in range(piece.start, piece.stop)]
    assert places == [place for piece in pieces for place in range(piece.start, piece.stop)]
    assert len(pieces) <= len(found) <= 30 + len(pieces)
    assert max(piece.stop - piece.start for piece in found) <= 5120


def test_a_lazy_layer_that_was_never_called_is_refused_in_a_sentence() -> None:
    net = nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 1))
    with pytest.raises(ConfigError, match=r"0\.weight has no size yet .* call the network once"):
        FlatParameters(net)
    net(torch.zeros(1, 3))
    assert sum(vector.numel() for vector in FlatParameters(net).vectors) == 4 * 3 + 4 + 4 + 1
