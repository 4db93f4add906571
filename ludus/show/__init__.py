"""Display of a run in the terminal, its progress, and the HTML report.

Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.core.lazy import lazy_names

if TYPE_CHECKING:
    from ludus.show.compared import Comparison as Comparison
    from ludus.show.comparing import compare as compare
    from ludus.show.progress import (
        IterationContext as IterationContext,
        attach_progress_bar as attach_progress_bar,
    )
    from ludus.show.report.band import Band as Band
    from ludus.show.report.charts import Line as Line, line_chart as line_chart, text as text
    from ludus.show.report.families import Section as Section
    from ludus.show.report.files import ReportedRun as ReportedRun
    from ludus.show.report.page import write_report as write_report
    from ludus.show.terminal import say as say
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
