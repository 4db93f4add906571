"""Display of a run in the terminal, its progress, and the HTML report.

Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.core.lazy import lazy_names

if TYPE_CHECKING:
    from ludus.show.progress import (
        IterationContext as IterationContext,
        attach_progress_bar as attach_progress_bar,
    )
    from ludus.show.report.charts import Line as Line, line_chart as line_chart, text as text
    from ludus.show.report.families import Section as Section
    from ludus.show.report.files import ReportedRun as ReportedRun
    from ludus.show.terminal import say as say
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
