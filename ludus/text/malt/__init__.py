"""MALT: trees of answers, the expected reward of each, and pairs of a better and a worse answer."""
