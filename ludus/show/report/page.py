"""Write the HTML page of a run, or of several side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ludus.core.errors import RunError
from ludus.show.report import sections as sections
from ludus.show.report.band import Band
from ludus.show.report.chart_lines import PageCurves
from ludus.show.report.charts import text
from ludus.show.report.comparisons import differences, group_table
from ludus.show.report.curves import (
    AXIS_NAMES,
    histogram_charts,
    metric_charts,
    page_curves,
    rate_charts,
)
from ludus.show.report.families import Section, family_sections, is_marked
from ludus.show.report.files import Reading, ReportedRun, read_run
from ludus.show.report.groups import grouped, run_labels
from ludus.show.report.notes import notes
from ludus.show.report.page_data import SCRIPT_HASH, PageData, band_note
from ludus.show.report.style import STYLE
from ludus.store.directory import found_run
from ludus.store.outputs import head_of, tail_of, write_file
from ludus.store.places import is_url, open_storage

_FOOTER = "Written by ludus. This page is whole in itself and runs no script."
_SCRIPT_FOOTER = (
    "Written by ludus. This page is whole in itself; its one script draws the curves again, and nothing else"
    " can run."
)
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def write_report(
    run_dirs: Sequence[str | Path], out: Path | None = None, *, band: Band = Band.STDERR
) -> Path:
    """Write the report of these runs and return its path; a crash never leaves half of one.

    Without `out`, the report of one run is in its directory, and that of several next to the first. Runs
    whose configs differ only in the seed are one curve, their mean, with this band.
    Raises RunError if a directory holds no run, StorageError if `out` is anything but an earlier report.
    """
    if not run_dirs:
        raise RunError("a report needs at least one run; `ludus runs` lists the runs there are")
    for path in run_dirs:
        if not _is_bare(path):
            found_run(path)
    places = [str(path if is_url(path) else Path(path).resolve()) for path in run_dirs]
    places = list(dict.fromkeys(places))
    reading = Reading.of(places)
    runs = [
        ReportedRun(place, {}) if _is_bare(place) else read_run(place, reading) for place in places
    ]
    if out is None and is_url(places[0]):
        raise RunError(f"{places[0]} is not a directory of this machine; give --out FILE.html")
    if out is None:
        # The path is shown as the run was given, but one such as `.` does not name its parent.
        first = Path(run_dirs[0])
        above = Path(places[0]).parent if first.name in ("", "..") else first.parent
        out = (first if len(places) == 1 else above) / "report.html"
    page = _page(runs, band)
    # A record may hold a lone surrogate, which cannot be encoded.
    write_file(out, page.encode("utf-8", errors="replace"), is_report, what="a report")
    return out


def _is_bare(path: str | Path) -> bool:
    """Return whether a location is not a run, but a family can report it."""
    storage = open_storage(path)
    return not storage.exists("run.json") and is_marked(storage)


def is_report(path: Path) -> bool:
    """Return whether a file is a report that ludus wrote."""
    tail = tail_of(path, 300)
    is_signed = any(footer.encode() in tail for footer in (_FOOTER, _SCRIPT_FOOTER))
    return head_of(path, 15) == b"<!DOCTYPE html>" and is_signed


def _page(runs: Sequence[ReportedRun], band: Band) -> str:
    labels = [one.name for one in grouped(runs)]
    title = ", ".join([*labels[:-2], " and ".join(labels[-2:])])
    if len(labels) > 5:
        title = f"{', '.join(labels[:4])} and {len(labels) - 4} more"
    is_one_run = len(runs) == 1 and runs[0].is_run
    body, script = (_one(runs[0]), "") if is_one_run else _several(runs, title, band)
    policy = f"{_POLICY}; script-src '{SCRIPT_HASH}'" if script else _POLICY
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{text(title)} · ludus report</title>
<style>{STYLE}</style>
</head>
<body>
<main>
{body}
{script}
<footer>{_SCRIPT_FOOTER if script else _FOOTER}</footer>
</main>
</body>
</html>
"""


def _one(run: ReportedRun) -> str:
    extra = list(family_sections([run]))
    kind, seed = run.about.get("kind", "unknown kind"), run.about.get("seed", "unknown")
    parts = [
        f'<p class="kicker">ludus report · {text(kind)} · seed {text(seed)}</p>',
        f'<div class="head"><h1>{text(run.name)}</h1>{sections.status_pill(run)}</div>',
        f"<p>{sections.status_sentence(run)}</p>",
        sections.summary_cards(run),
        f'<div class="panel">{sections.exactness(run)}</div>',
        notes([run]),
        *_of_families(extra),
        _curves(page_curves([run], grouped([run]))),
        _titled("<h2>Best model</h2>", sections.best_model(run)),
        *_found(run, extra, level=2),
        "<h2>Events</h2>",
        sections.events(run),
        "<h2>Environment</h2>",
        sections.environment(run),
        "<h2>Config</h2>",
        sections.config(run),
    ]
    return "\n".join(part for part in parts if part)


def _several(places: Sequence[ReportedRun], title: str, band: Band) -> tuple[str, str]:
    """Return a page of several runs, or of locations that only families can report, and its script."""
    extra = list(family_sections(places))
    runs = [place for place in places if place.is_run]
    groups = grouped(runs)
    page = page_curves(runs, groups, band)
    data = PageData(page, AXIS_NAMES)
    charts = _curves(page, data) if runs else ""
    has_groups = len(groups) < len(runs)
    table = _titled("<h2>Runs</h2>", sections.comparison(runs) if runs else "")
    compared = f" · {len(places)} runs compared" if len(places) > 1 else ""
    if has_groups:
        compared = f" · {len(runs)} runs in {len(groups)} group{'s' * (len(groups) > 1)}"
    parts = [
        f'<p class="kicker">ludus report{compared}</p>',
        f"<h1>{text(title)}</h1>",
        _titled("<h2>What differs</h2>", differences(groups)),
        _titled("<h2>Groups</h2>", group_table(runs, groups)),
        "" if has_groups else table,
        notes(places),
        *_of_families(extra),
        charts,
        table if has_groups else "",
    ]
    for run, label in zip(runs, run_labels(runs), strict=True):
        parts += [
            f'<h2>{text(label)}</h2><div class="panel">{sections.status_sentence(run)}'
            f"<br>{sections.exactness(run)}</div>",
            _titled("<h3>Best model</h3>", sections.best_model(run)),
            *_found(run, extra, level=3),
            _folded("Events", sections.events(run)),
            _folded("Environment", sections.environment(run)),
            _folded("Config", sections.config(run)),
        ]
    return "\n".join(part for part in parts if part), data.element() if data.has_charts else ""


def _of_families(extra: Sequence[Section]) -> list[str]:
    return [f"<h2>{text(one.title)}</h2>{one.body}" for one in extra]


def _titled(title: str, body: str) -> str:
    return f"{title}\n{body}" if body else ""


def _curves(page: PageCurves, data: PageData | None = None) -> str:
    charts = metric_charts(page, data)
    parts = ["<h2>Curves</h2>"]
    if charts:
        if data is not None:
            parts += [data.choices(), band_note(page)]
        parts.append(f'<div class="charts">{charts}</div>')
    else:
        parts.append('<div class="panel"><p>No metric was recorded.</p></div>')
    if rates := rate_charts(page, data):
        parts.append(f'<h2>Rates</h2><div class="charts small">{rates}</div>')
    return "\n".join(part for part in parts if part)


def _found(run: ReportedRun, extra: Sequence[Section], *, level: int) -> list[str]:
    """Return the histograms and texts of a run that no section has shown yet."""
    parts = []
    if histograms := histogram_charts(run):
        parts.append(f"<h{level}>Distributions</h{level}>")
        parts.append(f'<div class="charts small">{histograms}</div>')
    shown = [name for one in extra for name in one.texts]
    if texts := sections.texts(run, without=shown):
        parts.append(f"<h{level}>Texts</h{level}>{texts}")
    return parts


def _folded(title: str, body: str) -> str:
    return f"<details><summary>{title}</summary>{body}</details>"
