"""Strategies that score each example independently and query the highest scores.

Shapes: N candidate rows, B examples of a batch, T MC dropout samples or committee members, C classes, D
features.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional

from ludus.active.scoring import Need, PoolBatch
from ludus.active.strategy import ScoreConfig, ScoreStrategy, Several, Table, View
from ludus.config.base import PositiveFloat
from ludus.config.registry import register

_CHUNK = 4096


class PredictionScore(ScoreStrategy):
    """A score of the predicted class probabilities alone."""

    function: ClassVar[Callable[..., Tensor]]
    """Takes (B, C) log probabilities, or (T, B, C) of several samples or members."""

    def score(self, seen: PoolBatch) -> Tensor:
        """Return the (B,) scores."""
        log_probs = seen.draws if seen.log_probs is None else seen.log_probs
        assert log_probs is not None
        return type(self).function(log_probs)


def uncertainty(log_probs_BC: Tensor) -> Tensor:
    """Return (B,) one minus the largest probability of (B, C) log probabilities."""
    return 1 - log_probs_BC.max(1).values.exp()


@register("strategy", "uncertainty")
class Uncertainty(PredictionScore):
    """Least confidence sampling: one minus the probability of the most likely class."""

    function = staticmethod(uncertainty)

    class Config(ScoreConfig):
        """The options of every score strategy."""

        kind: Literal["uncertainty"]
        """Least confidence: 1 - max p."""


def margin(log_probs_BC: Tensor) -> Tensor:
    """Return (B,) one minus the difference of the two largest probabilities; 1 is a tie."""
    best_B2 = log_probs_BC.topk(2, dim=1).values.exp()
    return 1 - (best_B2[:, 0] - best_B2[:, 1])


@register("strategy", "margin")
class Margin(PredictionScore):
    """Margin sampling: the smallest margin between the two most likely classes."""

    function = staticmethod(margin)

    class Config(ScoreConfig):
        """The options of every score strategy."""

        kind: Literal["margin"]
        """The margin between the two most likely classes, smallest first."""


def entropy(log_probs_BC: Tensor) -> Tensor:
    """Return the (B,) entropies, in nats, of (B, C) log probabilities, with 0 log 0 = 0."""
    return -(log_probs_BC.exp() * log_probs_BC.clamp(min=-1e4)).sum(1)


@register("strategy", "entropy")
class Entropy(PredictionScore):
    """Entropy sampling: the entropy of the predicted class probabilities."""

    function = staticmethod(entropy)

    class Config(ScoreConfig):
        """The options of every score strategy."""

        kind: Literal["entropy"]
        """The entropy of the predicted classes."""


class DrawsConfig(ScoreConfig):
    """How it is estimated."""

    kind: str
    """The strategy."""
    draws: Several
    """Number of Monte Carlo dropout samples per example."""


class DrawsStrategy(PredictionScore):
    """A score over several Monte Carlo dropout samples."""

    needs: ClassVar[frozenset[Need]] = frozenset({"draws"})

    def __init__(self, config: DrawsConfig) -> None:
        super().__init__(config)
        self.draws = config.draws


def predictive_entropy(log_probs_TBC: Tensor) -> Tensor:
    """Return the (B,) entropies of the mean probabilities of (T, B, C) samples."""
    return entropy(mean_log_probs(log_probs_TBC))


def mean_log_probs(log_probs_TBC: Tensor) -> Tensor:
    """Return the (B, C) logarithms of the mean probabilities over samples."""
    return log_probs_TBC.logsumexp(0) - math.log(len(log_probs_TBC))


@register("strategy", "mc_dropout")
class McDropout(DrawsStrategy):
    """The predictive entropy: the entropy of the mean prediction over MC dropout samples."""

    function = staticmethod(predictive_entropy)

    class Config(DrawsConfig):
        """How it is estimated."""

        kind: Literal["mc_dropout"]
        """Predictive entropy: the entropy of the mean prediction over MC dropout samples."""


def bald(log_probs_TBC: Tensor) -> Tensor:
    """Return (B,) entropy of the mean prediction minus mean entropy over samples; at least 0."""
    num_draws, num_examples, num_classes = log_probs_TBC.shape
    each_TB = entropy(log_probs_TBC.reshape(-1, num_classes)).reshape(num_draws, num_examples)
    return (entropy(mean_log_probs(log_probs_TBC)) - each_TB.mean(0)).clamp(min=0)


@register("strategy", "bald")
class Bald(DrawsStrategy):
    """BALD: mutual information between the label of an example and the weights, by MC dropout."""

    function = staticmethod(bald)

    class Config(DrawsConfig):
        """How it is estimated."""

        kind: Literal["bald"]
        """BALD: mutual information of the label and the weights, by MC dropout."""


class CommitteeConfig(ScoreConfig):
    """The size of the committee."""

    kind: str
    """The strategy."""
    members: Several
    """Number of networks; all are trained on the same labels, each from its own initial weights."""


class CommitteeStrategy(PredictionScore):
    """A score of the predictions of several networks, trained together from different initial weights."""

    needs: ClassVar[frozenset[Need]] = frozenset({"members"})

    def __init__(self, config: CommitteeConfig) -> None:
        super().__init__(config)
        self.members = config.members


def vote_entropy(log_probs_TBC: Tensor) -> Tensor:
    """Return the (B,) entropies, in nats, of the vote shares of the classes."""
    votes_TBC = functional.one_hot(log_probs_TBC.argmax(2), log_probs_TBC.shape[2])
    return entropy(votes_TBC.to(log_probs_TBC).mean(0).log())


@register("strategy", "committee_vote_entropy")
class CommitteeVoteEntropy(CommitteeStrategy):
    """Query by committee: vote entropy; each member votes for its most likely class."""

    function = staticmethod(vote_entropy)

    class Config(CommitteeConfig):
        """The size of the committee."""

        kind: Literal["committee_vote_entropy"]
        """The entropy of the votes of a committee."""


def mean_kl(log_probs_TBC: Tensor) -> Tensor:
    """Return the (B,) means over members of KL(member || mean of all), with 0 log 0 = 0."""
    consensus_BC = mean_log_probs(log_probs_TBC).clamp(min=-1e4)
    ratios_TBC = log_probs_TBC.clamp(min=-1e4) - consensus_BC
    return (log_probs_TBC.exp() * ratios_TBC).sum(2).mean(0).clamp(min=0)


@register("strategy", "committee_kl")
class CommitteeKl(CommitteeStrategy):
    """Query by committee: the mean KL divergence of the members from their mean prediction."""

    function = staticmethod(mean_kl)

    class Config(CommitteeConfig):
        """The size of the committee."""

        kind: Literal["committee_kl"]
        """The mean KL divergence of a committee's members from their consensus."""


@register("strategy", "expected_gradient_length")
class ExpectedGradientLength(ScoreStrategy):
    """The norm of the last layer's gradient, in expectation over the possible labels."""

    needs: ClassVar[frozenset[Need]] = frozenset({"probabilities", "features"})

    class Config(ScoreConfig):
        """The options of every score strategy."""

        kind: Literal["expected_gradient_length"]
        """The expected norm of the gradient of the last layer's weights."""

    def score(self, seen: PoolBatch) -> Tensor:
        """Return (B,) expected norms."""
        assert seen.log_probs is not None
        assert seen.features is not None
        return expected_gradient_length(seen.log_probs, seen.features)


def expected_gradient_length(log_probs_BC: Tensor, features_BD: Tensor) -> Tensor:
    """Return (B,) the norms of (p - one-hot of c) x features, weighted by p of each class c.

    The norm of an outer product is the product of the norms, so no gradient is computed.
    """
    probs_BC = log_probs_BC.exp()
    squares_BC = probs_BC.square()
    is_likeliest_BC = functional.one_hot(probs_BC.argmax(1), probs_BC.shape[1]).bool()
    # For the most likely class the others are summed directly: subtracting it would leave rounding errors.
    without_B1 = squares_BC.masked_fill(is_likeliest_BC, 0).sum(1, keepdim=True)
    less_BC = squares_BC.sum(1, keepdim=True) - squares_BC
    others_BC = torch.where(is_likeliest_BC, without_B1, less_BC)
    lengths_BC = (others_BC + torch.expm1(log_probs_BC).square()).sqrt()
    norms_B: Tensor = torch.linalg.vector_norm(features_BD, dim=1)
    return (probs_BC * lengths_BC).sum(1) * norms_B


_UNCERTAINTIES = {"entropy": entropy, "margin": margin, "uncertainty": uncertainty}


@register("strategy", "density_weighted")
class DensityWeighted(ScoreStrategy):
    """Information density: an uncertainty score times the mean similarity to the pool."""

    needs: ClassVar[frozenset[Need]] = frozenset({"probabilities", "features"})

    class Config(ScoreConfig):
        """The uncertainty score and the power of the density."""

        kind: Literal["density_weighted"]
        """Information density: uncertainty times the mean similarity to the pool."""
        uncertainty: Literal["entropy", "margin", "uncertainty"]
        """The uncertainty score that is weighted."""
        power: PositiveFloat
        """The exponent of the mean similarity: above 1, density counts for more."""

    def score(self, seen: PoolBatch) -> Tensor:
        """Return (B,) the uncertainty scores alone."""
        assert seen.log_probs is not None
        return _UNCERTAINTIES[self.config.uncertainty](seen.log_probs)

    def scores(self, view: View, rows: Tensor) -> Tensor:
        """Return the (N,) scores, weighted by density; memory holds the features of the pool."""
        features, scores = Table(len(rows)), Table(len(rows))
        for seen in view.seen(rows, self.needs):
            assert seen.features is not None
            features.append(seen.features)
            scores.append(self.weighted(seen, view))
        scores_N = scores.filled()
        return scores_N * density(features.filled()).to(scores_N).pow(self.config.power)


def density(features_ND: Tensor) -> Tensor:
    """Return (N,) the mean similarity of each row to all, from 0 (opposite) to 1 (same direction).

    Similarity is (1 + cosine) / 2. The mean cosine is the dot product with the mean of the unit rows, so
    no N x N matrix is needed. A row of zeros has cosine 0 with all.
    """
    pieces = features_ND.float().split(_CHUNK)
    total_D = torch.stack([functional.normalize(rows).sum(0) for rows in pieces]).sum(0)
    mean_D = total_D / len(features_ND)
    cosines_N = torch.cat([functional.normalize(rows) @ mean_D for rows in pieces])
    return ((1 + cosines_N) / 2).clamp(0, 1)
