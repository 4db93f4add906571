"""The cache of compiled code, so that a resumed run compiles in seconds.

It is in the user's cache folder, not in the run's: compiled code is code, and a run directory may come from
anywhere. It survives a reboot, unlike torch's default in the temporary directory.
"""

from __future__ import annotations

import os

from ludus.store.cache import cache_folder

VARIABLE = "TORCHINDUCTOR_CACHE_DIR"


def use_lasting_cache() -> None:
    """Point torch's compiler at the cache folder of ludus, unless another one is set."""
    if VARIABLE in os.environ and not _is_torchs(os.environ[VARIABLE]):
        return
    try:
        folder = cache_folder() / "compiled"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except (OSError, RuntimeError):
        # Without a home or write access, torch uses its default.
        return
    if os.access(folder, os.W_OK):
        os.environ[VARIABLE] = str(folder)


def _is_torchs(place: str) -> bool:
    """Return whether this is torch's own default: it sets the variable when its compiler is imported."""
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    return place == default_cache_dir()
