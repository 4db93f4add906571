"""Plot the curves of one or several runs, in a notebook or as a file, with the charts of the report."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol
from xml.etree import ElementTree

from ludus.core.errors import ConfigError, RunError, nearest
from ludus.show.names import taken_apart
from ludus.show.report.charts import WIDE, text
from ludus.show.report.curves import metric_charts, page_curves
from ludus.show.report.files import ReportedRun, read_run
from ludus.show.report.groups import grouped
from ludus.show.report.style import chart_style
from ludus.show.wording import shorten
from ludus.store.outputs import head_of, write_file

_FIGURE = re.compile(r"<figure>.*?</figure>", re.DOTALL)
_MARK = b"<!-- written by ludus.plot -->"
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_MARGIN, _HEAD, _ROW = 16.0, 34.0, 20.0
_LONGEST_LABEL = 80
# Characters that an XML file must not hold, even as entities.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class HasDirectory(Protocol):
    """The outcome of a run, which knows its directory."""

    @property
    def run_dir(self) -> str | None: ...


def plot(
    run: str | Path | HasDirectory,
    *more: str | Path | HasDirectory,
    metric: str | Sequence[str] | None = None,
) -> Plot:
    """Return the curves of runs, given by their directories or results; several share each chart.

    `metric` is a name such as eval/return_mean, what several measure, such as loss, or a list of these;
    None draws every metric. Raises LudusError if a run has none of these names.
    """
    places = [_place(one) for one in (run, *more)]
    wanted = [metric] if isinstance(metric, str) else list(metric or ())
    runs = _only([read_run(place) for place in dict.fromkeys(places)], wanted)
    charts = metric_charts(page_curves(runs, grouped(runs)))
    return Plot(_FIGURE.findall(_NOT_XML.sub("\ufffd", charts)), places)


class Plot:
    """Charts of curves. The last expression of a notebook's cell is shown; `save` writes a file."""

    def __init__(self, figures: Sequence[str], places: Sequence[str]) -> None:
        self._figures = figures
        self._places = places

    def __repr__(self) -> str:
        charts = f"{len(self._figures)} chart{'s' * (len(self._figures) > 1)}"
        return f"<Plot: {charts} of {', '.join(self._places)}; .save('curves.svg') writes a file>"

    def _repr_html_(self) -> str:
        return framed("\n".join(self._figures))

    @property
    def html(self) -> str:
        """The charts as a page of their own, which shows the values under the mouse and runs no script."""
        title = text(", ".join(self._places))
        return f"""<!DOCTYPE html>
{_MARK.decode()}
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
</head>
<body>
{self._repr_html_()}
</body>
</html>
"""

    @property
    def svg(self) -> str:
        """The charts below each other as an image, with their titles and legends."""
        return _image([ElementTree.fromstring(figure) for figure in self._figures])

    def save(self, path: str | Path) -> Path:
        """Write the charts to a file that ends with .svg or .html, and return its path.

        Raises ConfigError for another ending, StorageError if the file is there and is no plot.
        """
        path = Path(path)
        if path.suffix not in (".svg", ".html"):
            raise ConfigError(
                f"{path}: a plot is written as an image or a page; end it with .svg or .html"
            )
        content = self.svg if path.suffix == ".svg" else self.html
        write_file(path, content.encode("utf-8", errors="replace"), _is_plot, what="a plot")
        return path


def framed(figures: str) -> str:
    """Return figures of the report with the style they need, which touches nothing else on a page."""
    style = chart_style(".ludus-plot")
    return (
        f'<div class="ludus-plot"><style>{style}</style><div class="charts">{figures}</div></div>'
    )


def _place(run: str | Path | HasDirectory) -> str:
    place = run if isinstance(run, str | Path) else run.run_dir
    if place is None:
        raise RunError(
            "this run was kept in memory, so there is no log of it whose curves can be drawn"
        )
    return str(place)


def _only(runs: Sequence[ReportedRun], wanted: Sequence[str]) -> list[ReportedRun]:
    """Return the runs with the wanted metrics alone."""
    parts = taken_apart(name for run in runs for name in run.metrics)
    if not parts:
        raise RunError(f"{runs[0].place} has no metric in its log, so there is nothing to draw")
    known = dict.fromkeys([*parts, *(part.kind for part in parts.values())])
    for name in wanted:
        if name not in known:
            raise ConfigError(f"no metric of {runs[0].place} is '{name}'.{nearest(name, known)}")
    kept = {n for n, part in parts.items() if not wanted or {n, part.kind} & {*wanted}}
    return [
        replace(run, metrics={n: series for n, series in run.metrics.items() if n in kept})
        for run in runs
    ]


def _is_plot(path: Path) -> bool:
    return _MARK in head_of(path, 200)


def _image(figures: Sequence[ElementTree.Element]) -> str:
    width, height, body = WIDE[0] + 2 * _MARGIN, 0.0, []
    for figure in figures:
        title = "".join(figure.findtext("figcaption", ""))
        body.append(f'<text class="title" x="{_MARGIN}" y="{height + 24}">{text(title)}</text>')
        height += _HEAD
        chart = figure.find("svg")
        if chart is not None:
            chart.set("x", str(_MARGIN))
            chart.set("y", str(height))
            chart.set("width", str(WIDE[0]))
            chart.set("height", str(WIDE[1]))
            body.append(ElementTree.tostring(chart, encoding="unicode"))
            height += WIDE[1] + 8
        for item in figure.iter("li"):
            height += _ROW
            body.append(_legend_row(item, height - 6))
        height += _MARGIN
    style = chart_style(".ludus-plot", is_image=True)
    return (
        f'<?xml version="1.0" encoding="utf-8"?>\n{_MARK.decode()}\n'
        f'<svg xmlns="http://www.w3.org/2000/svg" class="ludus-plot" width="{width:.0f}"'
        f' height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}">\n<style>{style}</style>\n'
        f'<rect width="100%" height="100%" fill="#fff"/>\n' + "\n".join(body) + "\n</svg>\n"
    )


def _legend_row(item: ElementTree.Element, y: float) -> str:
    """Return an entry of a legend, at the left end of its line."""
    swatch, x = item.find("svg"), _MARGIN
    drawn = ""
    if swatch is not None:
        wide = swatch.get("viewBox", "0 0 32 10").split()[2]
        for name, value in {"x": str(x), "y": str(y - 9), "width": wide, "height": "10"}.items():
            swatch.set(name, value)
        swatch.attrib.pop("style", None)
        tail, swatch.tail = swatch.tail or "", None
        drawn, x = ElementTree.tostring(swatch, encoding="unicode"), x + 40
        swatch.tail = tail
    label = shorten("".join(item.itertext()), _LONGEST_LABEL)
    return f'{drawn}<text x="{x}" y="{y}">{text(label)}</text>'
