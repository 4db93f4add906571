"""How much each key mattered, by Optuna's PED-ANOVA: how the best trials differ from all, key by key."""

from __future__ import annotations

import math
from typing import Any

from ludus.core.errors import ConfigError
from ludus.show.report.charts import drawing, text
from ludus.sweep.libraries import load_optuna, quiet
from ludus.sweep.report._read import ReportedSweep
from ludus.sweep.space import Space

_FEWEST = 8
"""With fewer complete trials the shares say nothing."""
_ROW, _WIDTH, _LEFT = 26.0, 560.0, 190.0


def importance(sweep: ReportedSweep) -> str:
    """Return a bar for each key, as long as its share."""
    complete = [
        trial
        for trial in sweep.trials
        if trial.state == "complete"
        and trial.score is not None
        and math.isfinite(trial.score.mean)
        and all(path in sweep.space for path in trial.point)
    ]
    if len(sweep.space) < 2:
        return ""
    if len(complete) < _FEWEST:
        reason = f"{len(complete)} trials are complete; with {_FEWEST} or more it can be estimated."
        return f'<div class="panel"><p>{reason}</p></div>'
    try:
        shares = _shares(sweep, complete)
    except ConfigError as error:
        return f'<div class="panel"><p class="warn">{text(error)}</p></div>'
    order = sorted(shares, key=lambda path: -shares[path])
    height = _ROW * len(order) + 10
    body = []
    for place, path in enumerate(order):
        y, width = 6 + place * _ROW, max(1.0, (_WIDTH - _LEFT - 60) * shares[path])
        share = f"{100 * shares[path]:.0f}%"
        label = path if len(path) <= 28 else f"…{path[-27:]}"
        body += [
            f'<text class="end" x="{_LEFT - 10:.0f}" y="{y + 15:.1f}">{text(label)}</text>',
            f'<rect class="bar" x="{_LEFT:.0f}" y="{y:.1f}" width="{width:.1f}" height="18" rx="2">'
            f"<title>{text(path)}: {share}</title></rect>",
            f'<text x="{_LEFT + width + 8:.1f}" y="{y + 15:.1f}">{share}</text>',
        ]
    chart = drawing("Share in what sets the best trials apart", body, (_WIDTH, height))
    note = (
        f"<p>By PED-ANOVA, from {len(complete)} complete trials: how differently a key is distributed among"
        " the best tenth. A share is an estimate; of few trials a rough one.</p>"
    )
    return f'<div class="one">{chart}</div><div class="panel">{note}</div>'


def _shares(sweep: ReportedSweep, complete: list[Any]) -> dict[str, float]:
    optuna = load_optuna()
    space = Space(sweep.space)
    with quiet():
        study = optuna.create_study(direction=f"{sweep.mode}imize")
        for trial in complete:
            distributions = {
                path: sweep.space[path].distribution(optuna.distributions) for path in trial.point
            }
            study.add_trial(
                optuna.trial.create_trial(
                    value=trial.score.mean,
                    params=space.labels(trial.point),
                    distributions=distributions,
                )
            )
        found = optuna.importance.get_param_importances(study)
    shares = {str(path): float(share) for path, share in found.items()}
    return {path: share if math.isfinite(share) else 0.0 for path, share in shares.items()}
