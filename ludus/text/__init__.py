"""Text: agents that are language models behind an API, trained through it; and a local server that speaks it.

Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.core.lazy import lazy_names

if TYPE_CHECKING:
    from ludus.text.chat import (
        ChatAnswer as ChatAnswer,
        ChatRequest as ChatRequest,
        Choice as Choice,
        Message as Message,
    )
    from ludus.text.jobs import Job as Job, JobSpec as JobSpec
    from ludus.text.nested import NestedArrayDict as NestedArrayDict
    from ludus.text.provider import Provider as Provider
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
