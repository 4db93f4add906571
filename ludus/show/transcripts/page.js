"use strict";
// Shows the episodes of the page: filters, search, pages of episodes. It reads the JSON of the page, puts it
// into the document as text alone, and reads nothing from elsewhere.
(() => {
const data = JSON.parse(document.getElementById("transcripts").textContent);
const field = id => document.getElementById(id);
const PER_PAGE = 25, LONG = 900, LONG_LINES = 12;
const [ROUND, AGENT, CHANNEL, TEXT, DECISION, TOKENS, FLAGS] = [0, 1, 2, 3, 4, 5, 6];
const TRUNCATED = 1, MALFORMED = 2;
const episodes = data.episodes;
const hidden = new Set();
let shown = [], page = 0, current = -1;

// ---- elements: words of the data become text nodes only

function make(tag, kind, ...children) {
  const made = document.createElement(tag);
  if (kind) made.className = kind;
  made.append(...children.filter(one => one !== null));
  return made;
}

function isolated(word) {
  return make("bdi", "", word);
}

function marked(words, wanted) {
  const made = document.createDocumentFragment();
  if (!wanted) {
    made.append(words);
    return made;
  }
  // Lower case may be longer than the text itself, so places are found in the text.
  const pattern = new RegExp(wanted.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "giu");
  let from = 0;
  for (const found of words.matchAll(pattern)) {
    made.append(words.slice(from, found.index), make("mark", "", found[0]));
    from = found.index + found[0].length;
  }
  made.append(words.slice(from));
  return made;
}

function prose(words, kind, wanted) {
  const made = make("div", kind, marked(words, wanted));
  const isLong = words.length > LONG || words.split("\n", LONG_LINES + 1).length > LONG_LINES;
  if (!isLong) return [made];
  made.classList.add("long");
  const more = make("button", "more", `show all ${words.length.toLocaleString("en")} characters`);
  more.type = "button";
  more.setAttribute("aria-expanded", "false");
  more.addEventListener("click", () => {
    const isOpen = !made.classList.toggle("long");
    more.textContent = isOpen ? "show less" : `show all ${words.length.toLocaleString("en")} characters`;
    more.setAttribute("aria-expanded", String(isOpen));
  });
  return [made, more];
}

function signed(value) {
  if (typeof value !== "number") return value;
  const short = String(Number(value.toPrecision(4)));
  return value > 0 ? "+" + short : short.replace("-", "\u2212");
}

function pill(word, kind) {
  return make("span", `pill small ${kind}`, isolated(word));
}

function ending(word) {
  return data.good.includes(word) ? "finished" : data.bad.includes(word) ? "bad" : "warn";
}

const colour = agent => `c${agent % data.colours}`;

function turnItem(turn, wanted) {
  const about = [`round ${turn[ROUND]}`];
  if (turn[TOKENS]) about.push(`${turn[TOKENS].toLocaleString("en")} token${turn[TOKENS] === 1 ? "" : "s"}`);
  const who = make("div", "who", make("span", `name ${colour(turn[AGENT])}`, isolated(data.agents[turn[AGENT]])),
    turn[CHANNEL] < 0 ? null : make("span", "channel", isolated(data.channels[turn[CHANNEL]])),
    make("span", "", about.join(" · ")),
    turn[DECISION] === null ? null : pill(turn[DECISION], "stopped"),
    turn[FLAGS] & TRUNCATED ? pill("cut off", "warn") : null,
    turn[FLAGS] & MALFORMED ? pill("unreadable", "bad") : null);
  const said = turn[TEXT] ? prose(turn[TEXT], "said", wanted) : [make("div", "silent", "says nothing")];
  return make("li", `turn ${colour(turn[AGENT])}`, who, ...said);
}

function article(number, wanted) {
  const one = episodes[number];
  const link = make("a", "", `episode ${number + 1}`);
  link.href = `#${number + 1}`;
  const gains = make("span", "gains", ...one.rewards.map(([agent, gain]) =>
    make("span", "", isolated(data.agents[agent]), " ", make("b", "", signed(gain)))));
  const top = make("div", "top", link,
    one.outcome === null ? null : pill(one.outcome, ending(one.outcome)),
    one.verdict === null ? null : make("span", "", "verdict ", isolated(one.verdict)),
    one.y === null ? null : make("span", "", `label ${one.y}`),
    make("span", "", `question ${one.index}`),
    splits.length > 1 ? make("span", "", isolated(one.split)) : null, gains);
  const turns = make("ol", "turns", ...one.turns.filter(isShown).map(turn => turnItem(turn, wanted)));
  const made = make("article", "episode", top, ...(one.question ? prose(one.question, "question", wanted) : []),
    turns, ...one.notes.map(note => make("div", "extra", note)));
  made.id = `episode-${number + 1}`;
  made.tabIndex = -1;
  return made;
}

// ---- filters

const counted = values => {
  const found = new Map();
  for (const value of values) found.set(value, (found.get(value) || 0) + 1);
  return found;
};
const outcomes = counted(episodes.map(one => one.outcome));
const splits = [...counted(episodes.map(one => one.split)).keys()];
const allTurns = flag => episodes.reduce((sum, one) => sum + one.turns.some(turn => turn[FLAGS] & flag), 0);

function options(id, all, choices) {
  const select = field(id);
  select.append(new Option(all, ""));
  for (const [value, word] of choices) select.append(new Option(word, String(value)));
  select.parentElement.hidden = choices.length < 2;
  select.addEventListener("change", () => apply());
}

function choices(values, name) {
  return [...counted(values)].map(([value, count], at) =>
    [at, `${name(value)} (${count.toLocaleString("en")})`]);
}

const keys = {};
for (const id of ["outcome", "split", "y"]) {
  const values = episodes.map(one => one[id]);
  keys[id] = [...counted(values).keys()];
  options(id, "all", choices(values, value => value === null ? "none" : String(value)));
}
options("channel", "all", data.channels.map((name, at) => [at, name]));
const lowest = one => Math.min(...one.rewards.map(([, gain]) => Number(gain)));
const length = one => one.turns.reduce((sum, turn) => sum + turn[TEXT].length, 0);
const ORDERS = [["as played", null], ["lowest reward first", lowest], ["highest reward first", one => -lowest(one)],
  ["longest first", one => -length(one)], ["shortest first", length]];
ORDERS.forEach(([name], at) => field("order").append(new Option(name, String(at))));
field("order").addEventListener("change", () => apply());

data.agents.forEach((name, agent) => {
  const box = make("input", "");
  box.type = "checkbox";
  box.checked = box.defaultChecked = true;
  box.addEventListener("change", () => {
    if (box.checked) hidden.delete(agent); else hidden.add(agent);
    apply();
  });
  field("agents").append(make("label", colour(agent), box, make("span", "", isolated(name))));
});
for (const [id, flag, name] of [["truncated", TRUNCATED, "cut off"], ["malformed", MALFORMED, "unreadable"]]) {
  const count = allTurns(flag), box = field(id);
  box.nextElementSibling.textContent = `${name} (${count.toLocaleString("en")})`;
  box.parentElement.hidden = !count;
  box.addEventListener("change", () => apply());
}

const isShown = turn => !hidden.has(turn[AGENT])
  && (field("channel").value === "" || turn[CHANNEL] === Number(field("channel").value));

function matches(one, wanted, flags) {
  for (const id of ["outcome", "split", "y"]) {
    const value = field(id).value;
    if (value !== "" && one[id] !== keys[id][Number(value)]) return false;
  }
  const turns = one.turns.filter(isShown);
  const isFiltered = hidden.size || field("channel").value !== "";
  if (isFiltered && one.turns.length && !turns.length) return false;
  if (flags && !turns.some(turn => turn[FLAGS] & flags)) return false;
  if (!wanted) return true;
  return [one.question, ...turns.map(turn => turn[TEXT]), ...one.notes]
    .some(words => words.toLowerCase().includes(wanted));
}

function apply(first = 0) {
  const wanted = field("search").value.toLowerCase();
  const flags = TRUNCATED * field("truncated").checked + MALFORMED * field("malformed").checked;
  shown = episodes.map((_, number) => number).filter(number => matches(episodes[number], wanted, flags));
  const key = ORDERS[Number(field("order").value)][1];
  if (key) {
    const places = episodes.map(one => key(one));
    shown.sort((a, b) => places[a] - places[b] || a - b);
  }
  page = Math.floor(first / PER_PAGE);
  current = -1;
  draw();
}

// ---- pages

function draw() {
  const from = page * PER_PAGE, here = shown.slice(from, from + PER_PAGE);
  const wanted = field("search").value;
  field("episodes").replaceChildren(...here.map(number => article(number, wanted)));
  if (!here.length) field("episodes").append(make("p", "empty", "No episode is like this."));
  const all = episodes.length.toLocaleString("en");
  field("count").textContent = shown.length === episodes.length ? `${all} episodes`
    : `${shown.length.toLocaleString("en")} of ${all} episodes`;
  for (const place of ["above", "below"]) field(place).replaceChildren(...pager());
}

function pager() {
  const last = Math.max(0, Math.ceil(shown.length / PER_PAGE) - 1);
  if (!last) return [];
  const button = (name, title, to) => {
    const made = make("button", "", name);
    made.type = "button";
    made.title = title;
    made.setAttribute("aria-label", title);
    made.disabled = to < 0 || to > last || to === page;
    made.addEventListener("click", () => turnTo(to));
    return made;
  };
  return [button("«", "first page", 0), button("‹", "previous page", page - 1),
    make("span", "", `page ${page + 1} of ${last + 1}`),
    button("›", "next page", page + 1), button("»", "last page", last)];
}

function turnTo(wanted) {
  const last = Math.max(0, Math.ceil(shown.length / PER_PAGE) - 1);
  if (wanted < 0 || wanted > last) return;
  page = wanted;
  current = -1;
  draw();
  field("filters").scrollIntoView();
}

function goTo(place) {
  if (place < 0 || place >= shown.length) return;
  if (Math.floor(place / PER_PAGE) !== page) {
    page = Math.floor(place / PER_PAGE);
    draw();
  }
  current = place;
  for (const one of document.querySelectorAll(".current")) one.classList.remove("current");
  const made = field("episodes").children[place - page * PER_PAGE];
  made.classList.add("current");
  made.focus({preventScroll: true});
  const isSticky = getComputedStyle(field("filters")).position === "sticky";
  made.style.scrollMarginTop = `${isSticky * field("filters").offsetHeight + 10}px`;
  made.scrollIntoView();
}

function follow() {
  const number = Number(location.hash.slice(1)) - 1;
  if (!Number.isInteger(number) || number < 0 || number >= episodes.length) return;
  if (!shown.includes(number)) {
    field("filters").reset();
    hidden.clear();
    apply();
  }
  goTo(shown.indexOf(number));
}

document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input[type=search], select")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const here = current < 0 ? page * PER_PAGE - 1 : current;
  const moves = {j: () => goTo(here + 1), k: () => goTo(here - 1), "[": () => turnTo(page - 1),
    "]": () => turnTo(page + 1), "/": () => field("search").focus()};
  if (!Object.hasOwn(moves, event.key)) return;
  event.preventDefault();
  moves[event.key]();
});
let waiting = 0;
field("search").addEventListener("input", () => {
  clearTimeout(waiting);
  waiting = setTimeout(apply, 120);
});
field("filters").addEventListener("submit", event => event.preventDefault());
addEventListener("hashchange", follow);
field("filters").hidden = false;
apply();
follow();
})();
