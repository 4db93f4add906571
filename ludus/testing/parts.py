"""Contract of a part: its state survives a round trip through disk, and saving it changes nothing."""

from __future__ import annotations

from collections.abc import Callable

from ludus.core.run import Stateful
from ludus.store import codec
from ludus.store.checkpoint import digest_of


def check_part(make: Callable[[], Stateful], use: Callable[[Stateful], object]) -> None:
    """Check a part that `make` builds and `use` changes; both must be repeatable."""
    used = make()
    use(used)
    first = digest_of(dict(used.state_dict()))
    assert digest_of(dict(used.state_dict())) == first, "saving changes the part"
    assert first != digest_of(dict(make().state_dict())), "using the part does not change its state"
    tree, tensors, segments = codec.encode(dict(used.state_dict()), keep=lambda p, t: t.clone())
    stored = codec.parse_json(codec.dump_json(tree), source="part")
    fresh = make()
    fresh.load_state_dict(codec.decode(stored, tensors, segments))
    assert digest_of(dict(fresh.state_dict())) == first, "loading does not bring the state back"
    # The same use from the same state must lead to the same state.
    use(fresh)
    use(used)
    after = [digest_of(dict(part.state_dict())) for part in (fresh, used)]
    assert after[0] == after[1], "a loaded part goes on in another way"
