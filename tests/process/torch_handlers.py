"""The handlers of child_handlers.py in a module that computes with torch."""

from __future__ import annotations

import torch  # noqa: F401

from tests.process.child_handlers import handlers  # noqa: F401
