"""The lineage of a population: who copied whom, and the values that the best was trained with."""

from __future__ import annotations

from ludus.show.report.charts import NARROW, Line, drawing, line_chart, text
from ludus.show.report.curves import AXIS_NAMES
from ludus.show.report.scales import Scale, counter_scale, short_number
from ludus.sweep.population.config import PopulationConfig
from ludus.sweep.population.record import PopulationRecord
from ludus.sweep.population.selection import Move
from ludus.sweep.report._read import ReportedSweep, axis_of, shown, wide

_ROW, _TOP, _LEFT, _WIDTH = 26.0, 20.0, 44.0, 760.0


def lineage(sweep: ReportedSweep) -> str:
    """Return the picture: a row for each member, a step for each generation, an arrow for each copy."""
    record, config = sweep.population, sweep.config
    assert record is not None
    assert isinstance(config, PopulationConfig)
    if not record.ends:
        return '<div class="panel"><p>No generation has ended yet.</p></div>'
    counter = config.population.counter
    ends = {
        generation: max(end.counters.get(counter, 0) for end in some.values())
        for generation, some in sorted(record.ends.items())
    }
    scale = counter_scale(0, max(1, *ends.values()))
    height = _TOP + _ROW * len(record.members) + 40
    body = _axis(scale, height, AXIS_NAMES.get(counter, counter))
    best = sweep.best
    ancestors = [] if best is None else record.ancestors(best.number)
    starts = {0: 0} | {generation + 1: step for generation, step in ends.items()}
    for generation, some in record.ends.items():
        order = _ranks(record, generation, sweep.mode == "max")
        for member in some:
            is_ancestor = generation < len(ancestors) and ancestors[generation] == member
            reached = some[member].counters.get(counter, 0)
            body.append(
                _stretch(record, generation, member, scale, starts[generation], reached,
                         order[member], is_ancestor=is_ancestor)
            )  # fmt: skip
    for generation, moves in record.moves.items():
        for move in moves:
            is_ancestor = (
                generation + 1 < len(ancestors)
                and ancestors[generation] == move.source
                and ancestors[generation + 1] == move.member
            )
            body.append(_arrow(move, scale, ends[generation], is_ancestor=is_ancestor))
    for member in record.members:
        label = f"{member}" + (" best" if best is not None and member == best.number else "")
        body.append(
            f'<text class="end" x="{_LEFT - 8:.0f}" y="{_y(member) + 4:.1f}">{label}</text>'
        )
    title = "A row is a member; an arrow is a checkpoint that another one took over"
    chart = drawing(title, body, (_WIDTH, height))
    note = (
        "<p>The stronger a stretch, the better its member was at its end; orange: where the weights of the"
        " best come from. Under the mouse: the values.</p>"
    )
    return (
        f"{wide(chart, at_least=560, at_most=1.3 * _WIDTH)}"
        f'<div class="panel">{note}</div>{_moves(record)}'
    )


def _y(member: int) -> float:
    return _TOP + _ROW * (member + 0.5)


def _x(scale: Scale, step: float) -> float:
    return _LEFT + scale.place(step) * (_WIDTH - _LEFT - 20)


def _axis(scale: Scale, height: float, name: str) -> list[str]:
    floor = height - 36
    parts = [f'<path class="axis" d="M{_LEFT:.1f} {floor:.1f}H{_WIDTH - 20:.1f}"/>']
    for tick, label in zip(scale.ticks, scale.labels, strict=True):
        x = _x(scale, tick)
        parts.append(f'<path class="grid" d="M{x:.1f} {_TOP:.1f}V{floor:.1f}"/>')
        parts.append(f'<text class="mid" x="{x:.1f}" y="{floor + 16:.1f}">{label}</text>')
    parts.append(f'<text class="mid" x="{_WIDTH / 2:.1f}" y="{floor + 33:.1f}">{text(name)}</text>')
    return parts


def _ranks(record: PopulationRecord, generation: int, is_max: bool) -> dict[int, float]:
    """Return the place of each member at the end of a generation, 1 for the best and 0 for the worst."""
    values = {member: end.value for member, end in record.ends[generation].items()}
    known = {m: v for m, v in values.items() if v is not None}
    order = sorted(known, key=lambda m: known[m] if is_max else -known[m])
    return {m: (order.index(m) / max(1, len(order) - 1) if m in known else 0.0) for m in values}


def _stretch(
    record: PopulationRecord, generation: int, member: int, scale: Scale, start: int, reached: int,
    rank: float, *, is_ancestor: bool,
) -> str:  # fmt: skip
    end, state = record.ends[generation][member], record.state(member, generation)
    words = [f"member {member}, generation {generation}: {end.status}"]
    words += [short_number(end.value)] if end.value is not None else [end.reason or "no value"]
    words += [f"{path}: {shown(value)}" for path, value in state.point.items()]
    title = text("\n".join(words))
    y, colour = _y(member), "c1" if is_ancestor else "c0"
    if end.status == "failed":
        x = _x(scale, max(start, reached))
        cross = f"M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8"
        return f'<path class="line c6" style="stroke-width:2" d="{cross}"><title>{title}</title></path>'
    style = f"stroke-width:{5 if is_ancestor else 4};stroke-linecap:butt"
    style += "" if is_ancestor else f";stroke-opacity:{0.15 + 0.75 * rank:.2f}"
    at = f"M{_x(scale, start) + 1.5:.1f} {y:.1f}H{_x(scale, reached) - 1.5:.1f}"
    return f'<path class="line {colour}" style="{style}" d="{at}"><title>{title}</title></path>'


def _arrow(move: Move, scale: Scale, step: int, *, is_ancestor: bool) -> str:
    x, start, stop = _x(scale, step), _y(move.source), _y(move.member)
    down = 1 if stop > start else -1
    # Arrows of one generation that go the same way would lie upon each other, so each is a bow.
    bow = 6 + 2.2 * (abs(move.member - move.source) ** 0.8)
    path = f"M{x:.1f} {start:.1f}C{x + bow:.1f} {start:.1f} {x + bow:.1f} {stop:.1f} {x + 1:.1f} {stop:.1f}"
    head = f"M{x + 6:.1f} {stop - 4 * down:.1f}L{x + 1:.1f} {stop:.1f}L{x + 7:.1f} {stop + 2 * down:.1f}"
    colour, style = (
        ("c1", "stroke-width:2.2") if is_ancestor else ("c5", "stroke-width:1.1;stroke-opacity:.6")
    )
    title = text(f"member {move.member} took over the checkpoint of member {move.source}")
    return f'<path class="line {colour}" style="{style}" d="{path}{head}"><title>{title}</title></path>'


def _moves(record: PopulationRecord) -> str:
    """Return the table of every copy, folded: who, whom, and the values before and after."""
    rows = []
    for generation, moves in sorted(record.moves.items()):
        for move in moves:
            before = record.state(move.source, generation).point
            changes = [
                f"{path} {shown(before.get(path))} → {shown(value)}"
                + (" (resampled)" if path in move.resampled else "")
                for path, value in move.point.items()
            ]
            cells = f"<td>{generation}</td><td>{move.member}</td><td>{move.source}</td>"
            rows.append(f'<tr>{cells}<td class="wide">{text("; ".join(changes))}</td></tr>')
    if not rows:
        return ""
    head = "<th>after generation</th><th>member</th><th>copied</th><th>values</th>"
    table = (
        f'<table class="ranks"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    )
    return f'<details><summary>All {len(rows)} copies</summary><div class="panel">{table}</div></details>'


def schedule(sweep: ReportedSweep) -> str:
    """Return a chart for each key: the values that the weights of the best were trained with."""
    record, config, best = sweep.population, sweep.config, sweep.best
    assert record is not None
    assert isinstance(config, PopulationConfig)
    section = config.population
    if best is None:
        return ""
    legs = record.schedule(best.number, section.counter, section.exploit_every)
    ends = record.ends[record.generation]
    end = ends[best.number].counters.get(section.counter, 0)
    charts = []
    for path, varied in sweep.space.items():
        axis = axis_of(path, varied)
        xs: list[float] = []
        ys: list[float] = []
        for leg, stop in zip(legs, [*(leg.start for leg in legs[1:]), end], strict=True):
            place = axis.place(leg.point.get(path))
            if place is not None:
                xs += [float(leg.start), float(stop)]
                ys += [place, place]
        if xs:
            line = Line(
                "the weights of the best", xs, ys, colour=1, value_text=shown(best.point.get(path))
            )
            x_scale = counter_scale(0, max(1, end))
            name = AXIS_NAMES.get(section.counter, section.counter)
            charts.append(
                line_chart(path, [line], x_label=name, size=NARROW, scales=(x_scale, axis.scale))
            )
    return f'<div class="charts small">{"".join(charts)}</div>' if charts else ""
