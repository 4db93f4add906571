"""`ludus.example`, with the type of each kind's config, so that editors complete its keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

from ludus.config import base

if TYPE_CHECKING:
    from ludus.active.config import ActiveConfig
    from ludus.arena.solo.parameters import SoloHyperParameters
    from ludus.arena.trainers.reinforce import ReinforceHyperParameters
    from ludus.arena.trainers.rerun_tests import RerunTestsParameters
    from ludus.arena.trainers.spg import SpgHyperParameters
    from ludus.arena.trainers.vanilla_ppo import VanillaPpoParameters
    from ludus.games.dqn.config import FusedDqnConfig
    from ludus.games.ppo.config import FusedPpoConfig
    from ludus.rl.agents.dqn import DqnConfig
    from ludus.rl.agents.iqn import IqnConfig
    from ludus.rl.agents.ppo import PpoConfig
    from ludus.rl.agents.sac import SacConfig
    from ludus.supervised.config import SupervisedConfig
    from ludus.text.expert_iteration.config import ExpertIterationHyperParameters
    from ludus.text.malt.config import MaltHyperParameters
    from ludus.text.policy_gradient.config import PolicyGradientHyperParameters
    from ludus.text.tuning.config import TextTuningConfig


@overload
def example(kind: Literal["active"], **changes: object) -> ActiveConfig: ...
@overload
def example(kind: Literal["dqn"], **changes: object) -> DqnConfig: ...
@overload
def example(kind: Literal["fused_dqn"], **changes: object) -> FusedDqnConfig: ...
@overload
def example(kind: Literal["fused_ppo"], **changes: object) -> FusedPpoConfig: ...
@overload
def example(kind: Literal["iqn"], **changes: object) -> IqnConfig: ...
@overload
def example(kind: Literal["ppo"], **changes: object) -> PpoConfig: ...
@overload
def example(kind: Literal["pure_text_ei"], **changes: object) -> ExpertIterationHyperParameters: ...
@overload
def example(kind: Literal["pure_text_malt"], **changes: object) -> MaltHyperParameters: ...
@overload
def example(kind: Literal["pure_text_pg"], **changes: object) -> PolicyGradientHyperParameters: ...
@overload
def example(kind: Literal["reinforce"], **changes: object) -> ReinforceHyperParameters: ...
@overload
def example(kind: Literal["rerun_tests"], **changes: object) -> RerunTestsParameters: ...
@overload
def example(kind: Literal["sac"], **changes: object) -> SacConfig: ...
@overload
def example(kind: Literal["solo_agent"], **changes: object) -> SoloHyperParameters: ...
@overload
def example(kind: Literal["spg"], **changes: object) -> SpgHyperParameters: ...
@overload
def example(kind: Literal["supervised"], **changes: object) -> SupervisedConfig: ...
@overload
def example(kind: Literal["text_tuning"], **changes: object) -> TextTuningConfig: ...
@overload
def example(kind: Literal["vanilla_ppo"], **changes: object) -> VanillaPpoParameters: ...
@overload
def example(kind: str, **changes: object) -> Any: ...
def example(kind: str, **changes: object) -> Any:
    """Return the complete typed example config of a kind of trainer or search, with some keys changed.

    The name of another file that ludus ships, such as dqn-acrobot, does as well as a kind.
    """
    return base.example(kind, **changes)
