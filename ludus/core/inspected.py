"""What of a trainer is looked at besides its parts: whom it asks, and what its data are like."""

from __future__ import annotations

from collections.abc import Mapping


class Inspected:
    """A base of every trainer; a family says more where it has more."""

    def consulted(self) -> Mapping[str, object]:
        """Return what the run asks and is in no part, by role: a game, analysers, an oracle.

        Those of the user's own with `state_dict` and `load_state_dict` become parts; others are watched.
        """
        return {}

    def data_facts(self) -> Mapping[str, str]:
        """Return, by role, a digest of the data: a resume with other data is refused."""
        return {}
