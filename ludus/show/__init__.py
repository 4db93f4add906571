"""Display of a run in the terminal, its progress, and the HTML report.

Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.core.lazy import lazy_names

if TYPE_CHECKING:
    from ludus.show.progress import IterationContext, attach_progress_bar
    from ludus.show.report.charts import Line, line_chart, text
    from ludus.show.report.families import Section
    from ludus.show.report.files import ReportedRun
    from ludus.show.terminal import say

_WHERE = {
    "IterationContext": "ludus.show.progress",
    "Line": "ludus.show.report.charts",
    "ReportedRun": "ludus.show.report.files",
    "Section": "ludus.show.report.families",
    "attach_progress_bar": "ludus.show.progress",
    "line_chart": "ludus.show.report.charts",
    "say": "ludus.show.terminal",
    "text": "ludus.show.report.charts",
}

__all__ = [
    "IterationContext",
    "Line",
    "ReportedRun",
    "Section",
    "attach_progress_bar",
    "line_chart",
    "say",
    "text",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _WHERE)
