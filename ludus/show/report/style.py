"""Style sheet of a report, for light, dark and paper."""

from __future__ import annotations

import re

COLOURS = ("#2a78d6", "#e2622d", "#159a6b", "#c98500", "#d6568a", "#4a3aa7", "#d03b3b", "#52712b")
_DARK = ("#4c97ee", "#ee7a48", "#27b884", "#e0a32a", "#e878a4", "#9a90f0", "#ee7373", "#9bbd6b")


def _palette(colours: tuple[str, ...]) -> str:
    return "".join(f"--c{index}:{colour};" for index, colour in enumerate(colours))


# Curves of one colour differ by their dash pattern; the first has none.
DASHES = (
    "",
    "6 4",
    "1.5 4",
    "9 3 2 3",
    "15 5",
    "9 3 2 3 2 3",
    "3 8",
    "15 3 6 3",
    "6 3 6 9",
    "1 3 1 9",
)

_CLASSES = "".join(f".c{index}{{color:var(--c{index})}}" for index in range(len(COLOURS)))
_PATTERNS = "".join(
    f".d{index}{{stroke-dasharray:{pattern}}}" for index, pattern in enumerate(DASHES) if pattern
)

STYLE = (
    (
        ":root{color-scheme:light dark;--page:#f6f6f4;--card:#fff;--ink:#16181d;--soft:#5c626d;"
        "--rule:#e3e3df;--grid:#e8e8e4;--good:#177245;--fair:#2a5db0;--warn:#9a5b00;--bad:#b42318;"
        + _palette(COLOURS)
        + "}@media (prefers-color-scheme:dark){:root{--page:#121316;--card:#1b1d21;--ink:#eceef1;"
        "--soft:#a0a6b1;--rule:#2e3138;--grid:#30343b;--good:#4cc38a;--fair:#7fb0ff;--warn:#f0b04c;"
        "--bad:#ff8a80;" + _palette(_DARK) + "}}" + _CLASSES + _PATTERNS
    )
    + """
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);
 font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main{max-width:1240px;margin:0 auto;padding:36px 24px 56px}
h1{font-size:28px;line-height:1.2;letter-spacing:-.015em;margin:0;overflow-wrap:anywhere}
h2{font-size:17px;margin:40px 0 12px;letter-spacing:-.005em;overflow-wrap:anywhere}
h3{font-size:14px;margin:24px 0 8px;color:var(--soft);font-weight:600}
p{margin:6px 0}.panel>:first-child{margin-top:0}.panel>:last-child{margin-bottom:0}
.kicker{color:var(--soft);font-size:13px;margin:0 0 6px}
.head{display:flex;flex-wrap:wrap;align-items:center;gap:8px 14px}
.pill{display:inline-block;border-radius:99px;padding:1px 11px;font-size:13px;font-weight:600;
 border:1px solid currentColor;white-space:nowrap}
.finished{color:var(--good)}.stopped{color:var(--fair)}.failed,.bad{color:var(--bad)}
.interrupted,.pruned,.warn{color:var(--warn)}.open{color:var(--soft)}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;
 margin:20px 0 12px}
.card,figure,.panel{background:var(--card);border:1px solid var(--rule);border-radius:10px}
.card{padding:12px 16px;min-width:0;container-type:inline-size}
.card b{display:block;font-size:23px;line-height:30px;font-weight:650;letter-spacing:-.01em;
 font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
.card b[style]{font-size:min(23px,calc(152cqi/var(--length)));white-space:nowrap}
.card span{display:block;color:var(--soft);font-size:13px;overflow-wrap:anywhere}
.wide{grid-column:span 2}
.panel{padding:12px 16px;margin:12px 0;overflow-x:auto}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,460px),1fr));gap:16px}
.small{grid-template-columns:repeat(auto-fill,minmax(min(100%,340px),1fr))}
figure{margin:0;padding:14px 16px 12px;min-width:0}
figcaption{font-weight:600;font-size:14px;margin-bottom:6px;overflow-wrap:anywhere}
svg{display:block;width:100%;height:auto;overflow:visible}
svg text{fill:var(--soft);font-size:12px;font-variant-numeric:tabular-nums}
svg .end{text-anchor:end}svg .mid{text-anchor:middle}
svg .marked{fill:var(--ink);font-weight:600;paint-order:stroke;stroke:var(--card);stroke-width:4px}
.grid{stroke:var(--grid);fill:none}.axis{stroke:var(--soft);stroke-opacity:.55;fill:none}
.line{fill:none;stroke:currentColor;stroke-width:1.7;stroke-linejoin:round;stroke-linecap:round}
.faint{stroke-width:1;stroke-opacity:.32}.run{stroke-width:1;stroke-opacity:.28}.dot{stroke-width:7}
.mark{fill:currentColor;stroke:var(--card);stroke-width:.8}
.mark.hollow{fill:var(--card);stroke:currentColor;stroke-width:1.5}
.moment{stroke:var(--warn);stroke-width:1.4;stroke-dasharray:4 3;fill:none}
.range{fill:currentColor;fill-opacity:.16}
.best{fill:var(--card);stroke:currentColor;stroke-width:2.4}
.bar{fill:var(--c0);fill-opacity:.85}.bar:hover{fill-opacity:1}
.band rect{fill:transparent}.band path,.band circle{opacity:0;pointer-events:none}
.band path{stroke:var(--soft);stroke-dasharray:2 3}.band circle{fill:currentColor}
.band:hover path,.band:hover circle{opacity:1}
.note{color:var(--soft);font-size:13px;margin:0 0 12px}
#choices{display:flex;flex-wrap:wrap;gap:6px 22px;align-items:center;position:sticky;top:8px;z-index:2;
 font-size:14px;color:var(--soft)}
#choices[hidden]{display:none}#choices label{display:flex;align-items:center;gap:8px}
#choices select,#choices input{font:inherit;color:var(--ink);accent-color:var(--c0)}
#choices select{background:var(--page);border:1px solid var(--rule);border-radius:6px;padding:3px 6px}
#choices output{font-variant-numeric:tabular-nums;min-width:2.3em}
figure[data-chart]{position:relative}
.pointer{pointer-events:none}.pointer path{stroke:var(--soft);stroke-dasharray:2 3}
.pointer circle{fill:currentColor}
.tip{position:absolute;top:34px;z-index:1;pointer-events:none;max-width:calc(100% - 8px);padding:6px 10px;
 background:var(--card);border:1px solid var(--rule);border-radius:8px;font-size:12.5px;line-height:1.45;
 box-shadow:0 2px 10px #0003;font-variant-numeric:tabular-nums}
.tip span{display:block;color:var(--soft);overflow-wrap:anywhere}
.tip .row{color:var(--ink)}
.tip i{display:inline-block;width:9px;height:9px;border-radius:3px;margin-right:7px;background:currentColor}
.differences td,.differences thead th{white-space:nowrap}.differences tbody th{color:var(--ink)}
.legend{display:flex;flex-wrap:wrap;gap:2px 18px;list-style:none;margin:8px 0 0;padding:0;
 font-size:13px;color:var(--soft)}
.legend li{overflow-wrap:anywhere}
.legend b{color:var(--ink);font-weight:600;font-variant-numeric:tabular-nums}
.legend .swatch{display:inline-block;height:10px;margin-right:6px;vertical-align:middle}
.none{color:var(--soft);padding:24px 0;text-align:center}
table{border-collapse:collapse;width:100%;font-size:14px}
th{text-align:left;font-weight:600;color:var(--soft);vertical-align:top;white-space:nowrap}
th,td{padding:5px 18px 5px 0;border-bottom:1px solid var(--rule)}
td{vertical-align:top;overflow-wrap:anywhere;font-variant-numeric:tabular-nums}
tr:last-child>*{border-bottom:0}
tbody th{width:1%;font-weight:400}
.runs tbody th{width:auto;font-weight:600;color:var(--ink);white-space:normal}
.runs td{overflow-wrap:break-word}.runs thead th{white-space:normal}
.one>figure{max-width:720px}
.charts>.panel{margin:0}
.thumbs{display:flex;flex-wrap:wrap;gap:8px;list-style:none;margin:8px 0 0;padding:0}
.thumbs li{display:flex;flex-direction:column;align-items:center;min-width:46px;font-size:13px}
.thumbs img{width:46px;height:46px;object-fit:contain;image-rendering:pixelated;
 border:1px solid var(--rule);border-radius:4px;background:var(--page)}
.thumbs b{max-width:120px;text-align:center;overflow-wrap:anywhere}
.numbers td,.shares td,.ranks td{white-space:nowrap}.ranks td.wide{white-space:normal;width:99%}
.numbers :is(td,th),.shares :is(td,th){text-align:right;padding:4px 10px}
.numbers th{white-space:normal;vertical-align:bottom}
.shares tr>:first-child{text-align:left;position:sticky;left:0;background:var(--card)}
.shares tbody th{white-space:nowrap}
.shares td[style]{background:color-mix(in srgb,var(--c0) calc(var(--share)*42%),transparent)}
.time{white-space:nowrap;color:var(--soft);width:1%}
pre{margin:0;font:12.5px/1.55 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;
 white-space:pre-wrap;overflow-wrap:anywhere;tab-size:2}
code{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;overflow-wrap:anywhere}
details{margin:10px 0}summary{cursor:pointer;font-weight:600;font-size:14px;color:var(--soft)}
footer{margin-top:48px;color:var(--soft);font-size:13px}
@media (max-width:640px){main{padding:20px 14px}h1{font-size:23px}.wide{grid-column:auto}
 .cards{grid-template-columns:repeat(auto-fit,minmax(130px,1fr))}
 #choices{position:static}.tip{top:auto;bottom:calc(100% - 34px)}
 .charts:not(.small) svg text,.one svg text{font-size:17px}
 .runs,.runs tbody,.runs tr,.runs tbody th,.runs td{display:block}.runs thead{display:none}
 .events,.events tbody,.events tr,.events td{display:block;width:auto}
 .runs th,.runs td,.events td{border:0;padding:2px 0}
 .runs tr,.events tr{padding:8px 0;border-bottom:1px solid var(--rule)}
 .runs tr:last-child,.events tr:last-child{border-bottom:0}
 .runs td[data-title]::before{content:attr(data-title);display:inline-block;width:11em;
 color:var(--soft)}}
@media print{body{background:none}.card,figure,.panel{break-inside:avoid}}
"""
)

_RULE = re.compile(r"([^{}@]+)\{([^{}]*)\}")
_OF_CHARTS = r"svg |\.(grid|axis|line|faint|dot|mark|moment|range|best|bar|band|c\d+|d\d+)\b"
_AROUND_CHARTS = r"svg$|figure|figcaption|\.(charts|legend|none)\b"
_VARIABLE = re.compile(r"var\((--[a-z0-9]+)\)")


def chart_style(scope: str, *, is_image: bool = False) -> str:
    """Return the rules of the charts, for elements inside this selector alone, in the light colours.

    Programs that show images know no variables, so the colours stand in their places.
    """
    light = STYLE[: STYLE.index("@media")]
    wanted = re.compile(_OF_CHARTS if is_image else f"{_OF_CHARTS}|{_AROUND_CHARTS}")
    colours = dict(re.findall(r"(--[a-z0-9]+):([^;}]+)", light))
    rules = []
    for selectors, declared in _RULE.findall(
        STYLE[STYLE.index("}}") + 2 : STYLE.index("@media (max")]
    ):
        named = [one.strip() for one in selectors.split(",")]
        scoped = [f"{scope} {one}" for one in named if wanted.match(one)]
        if scoped:
            plain = _VARIABLE.sub(lambda found: colours[found[1]], declared)
            rules.append(f"{','.join(scoped)}{{{plain.strip()}}}")
    family = "font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,Arial,sans-serif"
    rules.insert(0, f"{scope}{{color:{colours['--ink']};{family}}}")
    if is_image:
        rules.append(f"{scope}>text{{fill:{colours['--soft']};font-size:13px}}")
        rules.append(f"{scope}>.title{{fill:{colours['--ink']};font-weight:600;font-size:14px}}")
    else:
        rules.append(f"{scope} figure{{max-width:720px}}")
    return "\n".join(rules)
