"""The optimizer `adamw`: Adam with decoupled weight decay."""

from __future__ import annotations

from ludus.config.registry import register
from ludus.nn.optimizers.adam import AdamRule


@register("optimizer", "adamw")
class AdamWRule(AdamRule):
    """AdamW, by torch's fused kernel; the kind in its config tells it from Adam."""
