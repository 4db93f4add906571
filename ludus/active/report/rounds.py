"""The sections on the rounds of a run: class balance, calibration, queried examples, ranked candidates."""

from __future__ import annotations

from collections.abc import Sequence

from ludus.active.records import RANKING, Bin, Curve, Example, QueryRecord, Ranking
from ludus.active.report._kept import numbered, panel, records, section, some, table
from ludus.show.report.charts import NARROW, Line, line_chart, text
from ludus.show.report.families import Section
from ludus.show.report.files import ReportedRun
from ludus.show.report.scales import linear_scale, short_number

_MOST_BALANCES = 12
_MOST_CLASSES = 40
_MOST_CURVES = 3
_NOTE = (
    "<p>On the diagonal, predictions are right as often as the model is sure. ECE is the mean distance from"
    " it, each bin weighted by its examples.</p>"
)
# Together these limit the images of a page to a few hundred kilobytes.
_MOST_ROUNDS, _FEWEST_ROUNDS = 12, 3
_MOST_ROUNDS_OF_ALL = 36


def rounds(runs: Sequence[ReportedRun]) -> list[Section | None]:
    """Return the sections on what was asked in each round, and on the calibration of its model."""
    return [balance(runs), calibration(runs), queried(runs), ranking(runs)]


def balance(runs: Sequence[ReportedRun]) -> Section | None:
    """Return a table of shares for each run; None if no run has class labels."""
    return section("Class balance of the labels", runs, _balance_of_run)


def _balance_of_run(run: ReportedRun) -> str:
    names = some(numbered(run, "asked", r"round-(\d+)\.json"), _MOST_BALANCES)
    # Unreadable records are reported in the section on queries.
    found = [one for one in records(run, QueryRecord, names)[0] if one.labelled_by_class]
    # A class unknown to a later round would have no column in the table.
    found = [
        one
        for one in found
        if len(one.labelled_by_class or ()) == len(found[-1].labelled_by_class or ())
    ]
    return panel(_balance_table(found)) if found else ""


def _balance_table(found: Sequence[QueryRecord]) -> str:
    last = found[-1]
    num_classes, names = len(last.labelled_by_class or ()), last.class_names
    if names is None or len(names) != num_classes:
        names = [str(at) for at in range(num_classes)]
    columns = [(f"round {one.round}", one.labelled_by_class or []) for one in found]
    if last.pool_by_class and len(last.pool_by_class) == num_classes:
        columns.append(("pool", last.pool_by_class))
    totals = [sum(counts) or 1 for _, counts in columns]
    most = max(
        counts[at] / total
        for (_, counts), total in zip(columns, totals, strict=True)
        for at in range(num_classes)
    )
    shown = range(min(num_classes, _MOST_CLASSES))
    rows = [
        _balance_row(names[at], [counts[at] for _, counts in columns], totals, most or 1.0)
        for at in shown
    ]
    sizes = _balance_row("labels", totals, None, 1.0)
    left = num_classes - len(shown)
    more = f"<p>{left:,} further classes are left out.</p>" if left else ""
    return table("shares", ["class", *(title for title, _ in columns)], [*rows, sizes]) + more


def _balance_row(
    name: str, counts: Sequence[int], totals: Sequence[int] | None, most: float
) -> str:
    """Return a row of shares, darker if larger; without totals, the counts themselves."""
    if totals is None:
        cells = "".join(f"<td>{count:,}</td>" for count in counts)
    else:
        cells = "".join(
            f'<td style="--share:{count / total / most:.3f}" title="{count:,} of {total:,}">'
            f"{count / total:.0%}</td>"
            for count, total in zip(counts, totals, strict=True)
        )
    return f"<tr><th>{text(name)}</th>{cells}</tr>"


def calibration(runs: Sequence[ReportedRun]) -> Section | None:
    """Return reliability curves of some rounds of each run; None if no run has measured them."""
    return section("Calibration on the test data", runs, _calibration_of_run, note=panel(_NOTE))


def _calibration_of_run(run: ReportedRun) -> str:
    names = some(numbered(run, "", r"calibration_(\d+)\.json"), _MOST_CURVES)
    found, wrong = records(run, Curve, names)
    charts = "".join(_calibration_chart(curve) for curve in found)
    return (f'<div class="charts small">{charts}</div>' if charts else "") + panel(wrong)


def _calibration_chart(curve: Curve) -> str:
    scale = linear_scale(0.0, 1.0, num_ticks=5)
    lines = [Line("perfect", [0.0, 1.0], [0.0, 1.0], colour=7, dash=1, value_text="")]
    lines += _calibration_line("as predicted", curve.bins, 0)
    if curve.scaled_bins is not None:
        temperature = curve.temperature
        shown = "" if temperature is None else f" {short_number(round(temperature, 3))}"
        lines += _calibration_line(f"with temperature{shown}", curve.scaled_bins, 1)
    return line_chart(
        f"Round {curve.round}", lines, x_label="confidence", size=NARROW, scales=(scale, scale)
    )


def _calibration_line(label: str, bins: Sequence[Bin], colour: int) -> list[Line]:
    """Return the curve through the bins that hold examples, with its expected calibration error."""
    held = sorted(
        (one.confidence, one.accuracy, one.examples)
        for one in bins
        if one.examples and one.confidence is not None and one.accuracy is not None
    )
    if not held:
        return []
    total = sum(examples for _, _, examples in held)
    error = sum(abs(sure - right) * examples for sure, right, examples in held) / total
    xs, ys, _ = zip(*held, strict=True)
    return [Line(label, xs, ys, colour, value_text=f"ECE {error:.3f}")]


def queried(runs: Sequence[ReportedRun]) -> Section | None:
    """Return examples of the rounds of each run; None if no run has queries."""
    most = max(_FEWEST_ROUNDS, min(_MOST_ROUNDS, _MOST_ROUNDS_OF_ALL // len(runs)))
    return section("What was queried", runs, lambda run: _queries_of_run(run, most))


def _queries_of_run(run: ReportedRun, most: int) -> str:
    names = numbered(run, "asked", r"round-(\d+)\.json")
    found, wrong = records(run, QueryRecord, some(names, most))
    left = len(names) - min(len(names), most)
    more = f"<p>{left:,} rounds between these are left out.</p>" if left else ""
    rounds = "".join(_queries_of_round(asked) for asked in found)
    has_numbers = any(one.numbers for asked in found for one in asked.examples)
    # Two rounds of images fit next to each other; rows of numbers need the width.
    shown = rounds if has_numbers or not rounds else f'<div class="charts">{rounds}</div>'
    return shown + panel(wrong + more)


def _queries_of_round(asked: QueryRecord) -> str:
    left = asked.num_asked - len(asked.examples)
    count = f"{asked.num_asked:,} example{'s' * (asked.num_asked != 1)}"
    first = f", the first {len(asked.examples)} of them" if left > 0 else ""
    head = f"<h3>Round {asked.round}: {count} by {text(asked.how)}{first}</h3>"
    has_numbers = any(one.numbers for one in asked.examples)
    shown = _queries_table(asked) if has_numbers else _pictures(asked)
    return panel(head + shown)


def _pictures(asked: QueryRecord) -> str:
    """Return thumbnails with the label below each; for other examples, the row alone."""
    shown = []
    for one in asked.examples:
        name = f"row {one.row}"
        source = f"data:image/png;base64,{one.picture}"
        image = f'<img src="{source}" alt="{name}">' if one.picture else f"<code>{name}</code>"
        shown.append(f'<li title="{name}">{image}<b>{text(_answer(asked, one))}</b></li>')
    return f'<ul class="thumbs">{"".join(shown)}</ul>'


def _queries_table(asked: QueryRecord) -> str:
    columns = next((one.columns for one in asked.examples if one.columns), None)
    width = max(len(one.numbers) for one in asked.examples)
    titles = ["row", "answer", *(columns or [f"x{at}" for at in range(width)])[:width]]
    has_more = any(one.num_more for one in asked.examples)
    rows = []
    for one in asked.examples:
        numbers = ["nan" if value is None else f"{value:,.4g}" for value in one.numbers]
        cells = [str(one.row), _answer(asked, one), *numbers, *[""] * (width - len(numbers))]
        if has_more:
            cells.append(f"and {one.num_more:,} more" if one.num_more else "")
        rows.append("<tr>" + "".join(f"<td>{text(cell)}</td>" for cell in cells) + "</tr>")
    # A zero-width space lets a long column name break between its words.
    broken = [title.replace("_", "_\u200b") for title in [*titles, *[""] * has_more]]
    return table("numbers", map(text, broken), rows)


def _answer(asked: QueryRecord, one: Example) -> str:
    names = asked.class_names
    if names and isinstance(one.label, int) and 0 <= one.label < len(names):
        return names[one.label]
    return short_number(one.label)


def ranking(runs: Sequence[ReportedRun]) -> Section | None:
    """Return a table for each run with model selection; None if there is none."""
    return section("Ranking of the candidates", runs, _ranking_of_run)


def _ranking_of_run(run: ReportedRun) -> str:
    found, wrong = records(run, Ranking, [RANKING] if RANKING in run.names("") else [])
    return panel("".join(_ranking_table(one) for one in found) + wrong)


def _ranking_table(found: Ranking) -> str:
    rows = []
    for rank, one in enumerate(found.candidates, start=1):
        score = "not finite" if one.score is None else f"{one.score:.6f}"
        taken = ' <span class="pill finished">taken</span>' if one.is_taken else ""
        name = f'<td class="wide">{text(one.name)}{taken}</td>'
        rows.append(f"<tr><td>{rank}</td>{name}<td>{score}</td><td>{one.parameters:,}</td></tr>")
    return table("ranks", ("rank", "candidate", text(found.by), "parameters"), rows)
