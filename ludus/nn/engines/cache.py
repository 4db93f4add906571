"""Where compiled code is kept, so that a resumed run compiles in seconds.

In the user's cache folder and not in the run's: compiled code is code, and a run directory may come from
anywhere. It outlives a reboot, as torch's own place in the temporary directory does not.
"""

from __future__ import annotations

import os

from ludus.store.cache import cache_folder

VARIABLE = "TORCHINDUCTOR_CACHE_DIR"


def use_lasting_cache() -> None:
    """Let torch's compiler keep its code in the cache folder of ludus, unless it was given another."""
    if VARIABLE in os.environ and not _is_torchs(os.environ[VARIABLE]):
        return
    try:
        folder = cache_folder() / "compiled"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except (OSError, RuntimeError):
        # Without a home, or where nothing can be written, torch takes its own place.
        return
    if os.access(folder, os.W_OK):
        os.environ[VARIABLE] = str(folder)


def _is_torchs(place: str) -> bool:
    """Return whether torch itself chose this place: it sets the variable when its compiler is imported."""
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    return place == default_cache_dir()
