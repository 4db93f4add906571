"""The optimizer `adamw`: Adam with the weight decay kept apart from the gradient."""

from __future__ import annotations

from ludus.config.registry import register
from ludus.nn.optimizers.adam import AdamRule


@register("optimizer", "adamw")
class AdamWRule(AdamRule):
    """AdamW, by torch's fused kernel; its config says that it is not Adam."""
