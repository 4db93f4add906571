"""Ranking of the candidates: the score of each model, and the selected one."""

from __future__ import annotations

from collections.abc import Sequence

from ludus.active.records import RANKING, Ranking
from ludus.active.report._kept import by_run, panel, records
from ludus.show.report.charts import text
from ludus.show.report.families import Section
from ludus.show.report.files import ReportedRun


def ranking(runs: Sequence[ReportedRun]) -> Section | None:
    """Return a table for each run with model selection; None if there is none."""
    bodies = [_of_run(run) for run in runs]
    return Section("Ranking of the candidates", by_run(runs, bodies)) if any(bodies) else None


def _of_run(run: ReportedRun) -> str:
    found, wrong = records(run, Ranking, [RANKING] if RANKING in run.names("") else [])
    return panel("".join(_table(one) for one in found) + wrong)


def _table(found: Ranking) -> str:
    rows = []
    for rank, one in enumerate(found.candidates, start=1):
        score = "not finite" if one.score is None else f"{one.score:.6f}"
        taken = ' <span class="pill finished">taken</span>' if one.is_taken else ""
        name = f'<td class="wide">{text(one.name)}{taken}</td>'
        rows.append(f"<tr><td>{rank}</td>{name}<td>{score}</td><td>{one.parameters:,}</td></tr>")
    titles = ("rank", "candidate", text(found.by), "parameters")
    head = "".join(f"<th>{title}</th>" for title in titles)
    table = f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return f'<table class="ranks">{table}</table>'
