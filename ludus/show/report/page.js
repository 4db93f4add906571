"use strict";
// Draws the charts of a report again: along another axis, smoothed, with another band, with values under the
// pointer. It reads the JSON of the page, puts text into it as text alone, and reads nothing from elsewhere.
(() => {
const data = JSON.parse(document.getElementById("curves").textContent);
const places = data.x.map(one => Array.isArray(one) ? one
  : Array.from({length: one.count}, (_, at) => one.first + at * one.step));
const form = document.getElementById("choices");
const field = name => document.getElementById(name);
const TOP = 14, RIGHT = 14, BOTTOM = 44, MOST = 400, RESAMPLES = 1000, ROWS = 12;
const AREAS = {
  stderr: "; the area: plus and minus one standard error of the mean",
  bootstrap: "; the area: the 95% bootstrap interval of the mean",
  minmax: "; the area: from the lowest run to the highest", none: ""};

// ---- curves

function smoothed(ys, weight) {
  let sum = 0, rest = 1;
  return weight ? ys.map(y => {
    sum = weight * sum + (1 - weight) * y;
    rest *= weight;
    return sum / (1 - rest);
  }) : ys;
}

function merged(xs, ys) {
  const places = [], values = [];
  for (let at = 0; at < xs.length;) {
    let sum = 0, first = at;
    while (at < xs.length && xs[at] === xs[first]) sum += ys[at++];
    places.push(xs[first]);
    values.push(sum / (at - first));
  }
  return [places, values];
}

function between(grid, xs, ys) {
  let at = 0;
  return grid.map(x => {
    while (at < xs.length - 2 && xs[at + 1] < x) at++;
    if (x <= xs[0]) return ys[0];
    if (x >= xs[xs.length - 1]) return ys[ys.length - 1];
    return ys[at] + (ys[at + 1] - ys[at]) * (x - xs[at]) / (xs[at + 1] - xs[at]);
  });
}

const mean = values => values.reduce((sum, value) => sum + value, 0) / values.length;

// The same numbers at each call, so that a page shows the same band each time.
function random() {
  let state = 1;
  return () => {
    state = state + 0x6D2B79F5 | 0;
    let mixed = Math.imul(state ^ state >>> 15, 1 | state);
    mixed = mixed + Math.imul(mixed ^ mixed >>> 7, 61 | mixed) ^ mixed;
    return ((mixed ^ mixed >>> 14) >>> 0) / 4294967296;
  };
}

function bounds(rows, band) {
  const count = rows.length, columns = rows[0].map((_, at) => rows.map(row => row[at]));
  if (count < 2 || band === "none") return null;
  if (band === "minmax")
    return columns.map(column => [Math.min(...column), Math.max(...column)]);
  if (band === "stderr")
    return columns.map(column => {
      const middle = mean(column);
      const square = column.reduce((sum, y) => sum + (y - middle) ** 2, 0) / (count - 1);
      return [middle - Math.sqrt(square / count), middle + Math.sqrt(square / count)];
    });
  const draw = random();
  const chosen = Array.from({length: RESAMPLES},
    () => Array.from({length: count}, () => Math.floor(draw() * count)));
  return columns.map(column => {
    const means = chosen.map(indices => mean(indices.map(at => column[at]))).sort((a, b) => a - b);
    const at = share => {
      const place = share * (RESAMPLES - 1), low = Math.floor(place);
      return means[low] + (means[Math.min(low + 1, RESAMPLES - 1)] - means[low]) * (place - low);
    };
    return [at(0.025), at(0.975)];
  });
}

// The mean of the runs along an axis, as far as all of them go; the report draws the same without a script.
function meanCurve(runs, band) {
  const found = runs.filter(run => run.xs.length);
  if (!found.length) return {xs: [], ys: [], area: null};
  const low = Math.max(...found.map(run => run.xs[0]));
  const high = Math.min(...found.map(run => run.xs[run.xs.length - 1]));
  let grid, rows;
  if (low > high || found.every(run => run.xs.length === 1)) {
    grid = [mean(found.map(run => run.xs[run.xs.length - 1]))];
    rows = found.map(run => [run.ys[run.ys.length - 1]]);
  } else {
    grid = [...new Set(found.flatMap(run => run.xs))].sort((a, b) => a - b);
    grid = grid.filter(x => low <= x && x <= high);
    if (grid.length > MOST) {
      const whole = grid;
      grid = Array.from({length: MOST}, (_, at) => whole[Math.round(at * (whole.length - 1) / (MOST - 1))]);
    }
    rows = found.map(run => between(grid, ...merged(run.xs, run.ys)));
  }
  return {xs: grid, ys: grid.map((_, at) => mean(rows.map(row => row[at]))), area: bounds(rows, band)};
}

function curvesOf(chart, choice) {
  const can = name => chart.lines.every(line => line.runs.every(run => name in run.x));
  const axis = can(choice.axis) ? choice.axis : chart.axis;
  const lines = chart.lines.map(line => {
    const runs = line.runs.map(run => ({counts: run.counts,
      xs: axis in run.x ? places[run.x[axis]] : [], raw: run.y, ys: smoothed(run.y, choice.weight),
      range: run.low ? run.low.map((low, at) => [low, run.high[at]]) : null}));
    const curve = line.group ? meanCurve(runs.filter(run => run.counts), choice.band)
      : {xs: runs[0].xs, ys: runs[0].ys, area: null};
    const best = line.best.map(one => ({x: one.x[axis] || 0, y: one.y}));
    return {...line, ...curve, runs, best};
  });
  return {axis, lines};
}

// ---- scales

function steps(low, high, whole) {
  const rough = (high - low) / 6, size = 10 ** Math.floor(Math.log10(rough));
  const multiples = whole && size < 10 ? [1, 2, 5, 10] : [1, 2, 2.5, 5, 10];
  const step = Math.max(multiples.map(one => one * size).find(one => one >= rough) || 10 * size, whole ? 1 : 0);
  const ticks = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + 1e-9 * step; at++) ticks.push(at * step);
  return ticks;
}

function tickLabels(ticks) {
  const most = Math.max(...ticks.map(Math.abs)), step = ticks.length > 1 ? ticks[1] - ticks[0] : most;
  if (most >= 1e13 || most < 1e-3 && most > 0)
    return ticks.map(tick => tick ? tick.toExponential(1) : "0");
  const [unit, sign] = [[1e9, 1e9, "G"], [1e6, 1e6, "M"], [1e3, 1e4, "k"]]
    .filter(([unit, start]) => most >= start && step >= unit / 100).map(([unit, , sign]) => [unit, sign])[0]
    || [1, ""];
  let digits = 0;
  while (digits < 10 && Math.abs((step / unit).toFixed(digits) - step / unit) > 1e-6 * step / unit) digits++;
  return ticks.map(tick => tick
    ? (tick / unit).toLocaleString("en-US", {maximumFractionDigits: digits}) + sign : "0");
}

function valueScale(values) {
  const ordered = [...values].sort((a, b) => a - b), count = ordered.length;
  let low = ordered[0], high = ordered[count - 1];
  const edge = Math.floor(count / 20);
  if (low > 1e-290 && (ordered[count - 1 - edge] / ordered[edge] > 100
      || high / ordered[count - 1 - edge] > 100)) {
    const from = Math.floor(Math.log10(low)), to = Math.ceil(Math.log10(high)), ticks = [];
    for (let power = from; power <= to; power += Math.max(1, Math.ceil((to - from) / 6)))
      if (low * 0.9 <= 10 ** power && 10 ** power <= high * 1.1) ticks.push(10 ** power);
    const [bottom, top] = [Math.log(low * 0.9), Math.log(high * 1.1)];
    return {ticks, labels: ticks.map(tick => tick >= 1e-3 && tick <= 1e4 ? `${tick}` : tick.toExponential(0)),
      place: y => (Math.log(y) - bottom) / (top - bottom), isLog: true};
  }
  const span = high - low;
  const margin = span > 1e-9 * Math.max(Math.abs(low), Math.abs(high)) ? span * 0.06
    : Math.abs(low) * 0.1 || 1;
  low = 0 <= low && low < 0.3 * high ? 0 : low - margin;
  high += margin;
  const ticks = steps(low, high, false);
  return {ticks, labels: tickLabels(ticks), place: y => (y - low) / (high - low), isLog: false};
}

function placeScale(low, high, axis) {
  const isTime = axis === "seconds" || axis === "cpu_seconds";
  const [unit, name] = !isTime ? [1, ""] : high >= 7200 ? [3600, " (hours)"]
    : high >= 120 ? [60, " (minutes)"] : [1, " (seconds)"];
  if (0 <= low && low < 0.2 * high) low = 0;
  else if (low === high) [low, high] = [Math.max(low - 1, 0), high + 1];
  const ticks = steps(low / unit, high / unit, !isTime);
  return {ticks: ticks.map(tick => tick * unit), labels: tickLabels(ticks), name,
    place: x => (x - low) / (high - low || 1), show: x => short(x / unit)};
}

function short(value) {
  return Math.abs(value) >= 1e15 || value && Math.abs(value) < 1e-4 ? value.toExponential(4).replace(/\.?0+e/, "e")
    : value.toLocaleString("en-US", Math.abs(value) >= 1e4 ? {maximumFractionDigits: 0}
      : {maximumSignificantDigits: 5});
}

// ---- drawing

function make(tag, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

const SHAPES = ["m-3.6 0a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0 -7.2 0z", "m-3.3 -3.3h6.6v6.6h-6.6z",
  "m0 -4.8l4.8 4.8l-4.8 4.8l-4.8 -4.8z", "m0 -4.6l4.6 8h-9.2z", "m0 4.6l4.6 -8h-9.2z"];

function draw(figure, chart, choice) {
  const svg = figure.querySelector("svg[role]");
  if (!svg) return;
  const {axis, lines} = curvesOf(chart, choice), [width, height] = chart.size;
  const showsRuns = line => line.group && choice.runs;
  const values = lines.flatMap(line => [...line.ys, ...(line.area || []).flat(),
    ...line.best.map(best => best.y), ...(showsRuns(line) ? line.runs.flatMap(run => run.ys) : []),
    ...(!line.group && line.runs[0].range || []).flat()]);
  const xs = lines.flatMap(line => [...line.runs.flatMap(run => run.xs), ...line.best.map(best => best.x)]);
  if (!values.length) return;
  const ends = xs.reduce(([low, high], x) => [Math.min(low, x), Math.max(high, x)], [Infinity, -Infinity]);
  const x = placeScale(...ends, axis), y = valueScale(values);
  const left = 18 + 6.6 * Math.max(1, ...y.labels.map(label => label.length)), floor = height - BOTTOM;
  const across = value => left + x.place(value) * (width - RIGHT - left);
  const down = value => floor - y.place(value) * (floor - TOP);
  const point = (px, py) => `${across(px).toFixed(1)} ${down(py).toFixed(1)}`;
  const path = (xs, ys) => "M" + ys.map((value, at) => point(xs[at], value)).join("L");
  const parts = [];
  y.ticks.forEach((tick, at) => {
    parts.push(make("path", {class: "grid", d: `M${left} ${down(tick).toFixed(1)}H${width - RIGHT}`}));
    parts.push(make("text", {class: "end", x: left - 8, y: down(tick) + 4}, y.labels[at]));
  });
  parts.push(make("path", {class: "axis", d: `M${left} ${floor}H${width - RIGHT}`}));
  x.ticks.forEach((tick, at) => {
    const px = across(tick), label = x.labels[at];
    parts.push(make("path", {class: "axis", d: `M${px} ${floor}v4`}));
    parts.push(make("text", {class: px + 3.4 * label.length > width ? "end" : "mid", x: px, y: floor + 18}, label));
  });
  const name = (data.axes.find(one => one[0] === axis) || [axis, axis])[1];
  parts.push(make("text", {class: "mid name", x: (left + width - RIGHT) / 2, y: floor + 37},
    name + x.name + (y.isLog ? " (vertical axis logarithmic)" : "")));
  for (const line of lines) if (line.area) {
    const sides = line.xs.length === 1 ? [-3, 3] : [0];
    const edge = which => line.xs.flatMap((px, at) => sides.map(side =>
      `${(across(px) + side).toFixed(1)} ${down(line.area[at][which]).toFixed(1)}`));
    const d = "M" + [...edge(1), ...edge(0).reverse()].join("L") + "Z";
    parts.push(make("path", {class: `range c${line.colour}`, d}));
  }
  for (const line of lines) for (const run of line.runs) {
    if (!run.xs.length) continue;
    if (showsRuns(line)) {
      const dot = run.xs.length === 1 ? " dot" : "", d = path(run.xs, run.ys) + (dot && "h0");
      parts.push(make("path", {class: `line c${line.colour} run${dot}`, d}));
    } else if (!line.group && (run.range || choice.weight) && !line.dots) {
      const d = run.range ? "M" + run.xs.flatMap((px, at) =>
        [point(px, run.range[at][0]), point(px, run.range[at][1])]).join("L") : path(run.xs, run.raw);
      parts.push(make("path", {class: `line c${line.colour} faint`, d}));
    }
  }
  for (const line of lines) {
    if (!line.xs.length) continue;
    if (line.dots || line.xs.length === 1) {
      const hollow = line.dash % 10 >= SHAPES.length ? " hollow" : "";
      const d = line.xs.map((px, at) => "M" + point(px, line.ys[at]) + SHAPES[line.dash % SHAPES.length]).join("");
      parts.push(make("path", {class: `mark${hollow} c${line.colour}`, d}));
    } else parts.push(make("path", {class: `line c${line.colour} d${line.dash}`, d: path(line.xs, line.ys)}));
    for (const best of line.best) {
      const mark = make("circle", {class: `best c${line.colour}`, cx: across(best.x), cy: down(best.y), r: 5.5});
      mark.append(make("title", {}, `best of ${line.label}: ${short(best.y)} at ${x.show(best.x)}`));
      parts.push(mark);
    }
  }
  const pointer = make("g", {class: "pointer"});
  svg.replaceChildren(...parts, pointer);
  tell(figure, lines, choice);
  figure.shown = {lines, across, down, floor, pointer, x, axis, name: name + x.name, width};
}

// The legend has the last mean with its band.
function tell(figure, lines, choice) {
  const items = figure.querySelectorAll(".legend li");
  lines.forEach((line, at) => {
    if (!line.group || !line.ys.length || !items[at]) return;
    const last = line.ys.length - 1, edge = line.area && line.area[last];
    items[at].querySelector("b").textContent = short(line.ys[last]) + (!edge ? ""
      : choice.band === "stderr" ? ` \u00b1 ${short(Number(((edge[1] - edge[0]) / 2).toPrecision(2)))}`
      : ` (${short(edge[0])} to ${short(edge[1])})`);
  });
}

// ---- values under the pointer

function nearest(xs, x) {
  let low = 0, high = xs.length - 1;
  while (low < high) {
    const middle = low + high >> 1;
    if (xs[middle] < x) low = middle + 1; else high = middle;
  }
  return low && x - xs[low - 1] < xs[low] - x ? low - 1 : low;
}

function hover(figure, event) {
  const shown = figure.shown, svg = figure.querySelector("svg[role]");
  if (!shown) return;
  const box = svg.getBoundingClientRect(), px = (event.clientX - box.left) / box.width * shown.width;
  const found = shown.lines.filter(line => line.xs.length).map(line => {
    // The axis is linear, so the nearest on the screen is the nearest.
    const zero = shown.across(0), at = nearest(line.xs, (px - zero) / (shown.across(1) - zero));
    return {line, at, distance: Math.abs(shown.across(line.xs[at]) - px)};
  });
  if (!found.length) return;
  const first = found.reduce((a, b) => b.distance < a.distance ? b : a), x = first.line.xs[first.at];
  const rows = found.filter(one => Math.abs(shown.across(one.line.xs[one.at]) - shown.across(x)) < 6)
    .sort((a, b) => b.line.ys[b.at] - a.line.ys[a.at]);
  const parts = [make("path", {d: `M${shown.across(x)} ${TOP}V${shown.floor}`})];
  const tip = figure.querySelector(".tip") || figure.appendChild(document.createElement("div"));
  tip.className = "tip";
  tip.replaceChildren(document.createElement("span"));
  tip.firstChild.textContent = `${shown.name} ${shown.x.show(x)}`;
  for (const {line, at} of rows.slice(0, ROWS)) {
    parts.push(make("circle", {class: `c${line.colour}`, cx: shown.across(line.xs[at]),
      cy: shown.down(line.ys[at]), r: 3.5}));
    const row = tip.appendChild(document.createElement("span")), edge = line.area && line.area[at];
    row.className = "row";
    row.appendChild(document.createElement("i")).className = `c${line.colour}`;
    row.append(`${line.label}: ${short(line.ys[at])}`
      + (edge ? ` (${short(edge[0])} to ${short(edge[1])})` : ""));
  }
  if (rows.length > ROWS) tip.appendChild(document.createElement("span")).textContent = `and ${rows.length - ROWS} more`;
  shown.pointer.replaceChildren(...parts);
  const room = figure.clientWidth, at = box.left - figure.getBoundingClientRect().left + box.width * shown.across(x) / shown.width;
  tip.style.left = `${Math.max(4, Math.min(at + 12, room - tip.offsetWidth - 4))}px`;
  if (at + 12 + tip.offsetWidth > room && at - 12 - tip.offsetWidth > 4) tip.style.left = `${at - 12 - tip.offsetWidth}px`;
}

function leave(figure) {
  const tip = figure.querySelector(".tip");
  if (tip) tip.remove();
  if (figure.shown) figure.shown.pointer.replaceChildren();
}

// ---- choices

const figures = [...document.querySelectorAll("figure[data-chart]")];

function redraw() {
  const choice = {axis: field("axis").value, weight: Number(field("smoothing").value),
    band: field("band") ? field("band").value : data.band, runs: !field("runs") || field("runs").checked};
  field("weight").textContent = choice.weight.toFixed(2);
  if (field("area")) field("area").textContent = (choice.runs ? ": single runs" : " are hidden") + AREAS[choice.band] + ".";
  for (const figure of figures) {
    leave(figure);
    draw(figure, data.charts[figure.dataset.chart], choice);
  }
}

for (const [name, label] of data.axes) field("axis").append(new Option(label, name));
for (const figure of figures) {
  const svg = figure.querySelector("svg[role]");
  if (!svg) continue;
  for (const event of ["pointermove", "pointerdown"]) svg.addEventListener(event, one => hover(figure, one));
  svg.addEventListener("pointerleave", () => leave(figure));
}
form.addEventListener("input", redraw);
form.addEventListener("submit", event => event.preventDefault());
form.hidden = !figures.length;
redraw();
})();
