"use strict";
// Sentences with their translations and heat maps: what all pages that show attention draw. Each page has a script of
// its own after this one, an element #data and a list #sentences.
//
// The data: { src, tgt: language codes, tags: { s, t }: the same as HTML has them,
// sentences: [{ n: line, s: source, x: cut, c: candidates }] }.
// A candidate: { y: text, t: target, e: has the end, r: score, p: log p, l: ended by the length limit,
// w: weights in thousandths, a row a target unit, or null, b: first and last source position of each row's window or null }.
const DATA = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const SOURCE = "s", TARGET = "t";
// From here on text is written in --on-heat: the contrast is at least 4.5 on either side, in both schemes.
const HOT = 720;
const FAINT = 5; // less than this is shown as nothing

const list = document.getElementById("sentences");
const cards = DATA.sentences.map((sentence) => ({ sentence, candidate: 0, held: null }));

function make(tag, options = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (name === "text") element.textContent = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

function draw(tag, options = {}) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(options)) element.setAttribute(name, value);
  return element;
}

const minus = (text) => text.replace("-", "\u2212");
const score = (number) => minus(number.toFixed(3));
const weight = (thousandths, digits) => (thousandths / 1000).toFixed(digits);
const bdi = (side, text) => make("bdi", { lang: DATA.tags[side], text });
const candidateOf = (card) => card.sentence.c[card.candidate];

// --- one sentence ---------------------------------------------------------------------------------------------------

function wordRow(card, side, units, hasEnd) {
  const language = side === SOURCE ? DATA.src : DATA.tgt;
  const named = { role: "group", "aria-label": side === SOURCE ? "source" : "target", lang: DATA.tags[side] };
  // The first letters say which way the words follow each other; what a word holds changes nothing outside it.
  const words = make("div", { class: "words", dir: "auto", ...named });
  units.forEach((unit, place) => {
    const end = hasEnd && place === units.length - 1;
    const options = { type: "button", class: end ? "word end" : "word", "data-side": side, "data-place": place };
    words.append(make("button", options, make("span", { class: "unit", text: unit }), make("span", { class: "num" })));
  });
  return make("div", { class: "row" }, make("span", { class: "side", text: language }), words);
}

function about(card) {
  const sentence = card.sentence, candidate = candidateOf(card);
  const line = make("div", { class: "about" });
  line.append(make("a", { href: `#line-${sentence.n}`, text: `line ${sentence.n}` }));
  line.append(make("span", { class: "score", text: `score ${score(candidate.r)}` }));
  line.append(make("span", { text: `log p ${score(candidate.p)}` }));
  if (sentence.x) line.append(make("span", { class: "warn", text: "source cut: too long" }));
  if (candidate.l) line.append(make("span", { class: "warn", text: "stopped at the length limit" }));
  return line;
}

function candidateList(card) {
  const sentence = card.sentence;
  const box = make("fieldset", { class: "candidates" }, make("legend", { text: "translations, best first" }));
  sentence.c.forEach((candidate, rank) => {
    const choice = make("input", { type: "radio", name: `candidate-${sentence.n}`, value: rank });
    choice.checked = rank === card.candidate;
    const number = make("span", { class: "num", text: score(candidate.r) });
    box.append(make("label", {}, choice, number, bdi(TARGET, candidate.y)));
  });
  return box;
}

// The part that depends on the chosen candidate is made anew with it.
function fillBody(card) {
  const candidate = candidateOf(card), sentence = card.sentence;
  card.held = null;
  if (!candidate.w) { // of a model without attention, or a blank line
    card.body.replaceChildren(about(card));
    return;
  }
  card.body.replaceChildren(
    about(card),
    wordRow(card, SOURCE, sentence.s, true),
    wordRow(card, TARGET, candidate.t, candidate.e),
    make("p", { class: "detail", "aria-live": "polite" }),
  );
  card.map.replaceChildren(heatMap(card));
}

function fill(card) {
  if (card.body) return;
  const article = card.article;
  card.body = make("div");
  // Where it is too wide it scrolls, which the keyboard can do to what has the focus.
  const name = `heat map of line ${card.sentence.n}`;
  card.map = make("div", { class: "map", role: "group", "aria-label": name, tabindex: 0 });
  article.append(card.body);
  if (card.sentence.c.length > 1) article.append(candidateList(card));
  if (candidateOf(card).w) article.append(card.map);
  article.style.minHeight = "";
  fillBody(card);
}

// --- its heat map ---------------------------------------------------------------------------------------------------

const ruler = document.createElement("canvas").getContext("2d");
ruler.font = "13px system-ui, 'Segoe UI', 'Noto Sans', sans-serif";

function label(unit) {
  const characters = Array.from(unit);
  return characters.length > 18 ? characters.slice(0, 17).join("") + "…" : unit;
}

function cellSize(columns) {
  return columns <= 30 ? 24 : columns <= 60 ? 18 : 14;
}

function windowPath(rows, cell, x, y) {
  const right = rows.flatMap(([, last], row) => [[last + 1, row], [last + 1, row + 1]]);
  const left = rows.flatMap(([first], row) => [[first, row], [first, row + 1]]).reverse();
  return "M" + [...right, ...left].map(([column, row]) => `${x + column * cell} ${y + row * cell}`).join("L") + "Z";
}

function heatMap(card) {
  const candidate = candidateOf(card), sources = card.sentence.s, targets = candidate.t;
  const cell = cellSize(sources.length), width = cell * sources.length, height = cell * targets.length;
  const widest = (units) => Math.ceil(Math.max(...units.map((unit) => ruler.measureText(label(unit)).width)));
  const slope = Math.SQRT1_2 * (widest(sources) + 14);
  const left = widest(targets) + 14, top = Math.ceil(slope) + 8;
  const all = { width: left + width + Math.ceil(slope), height: top + height + 4 };
  const svg = draw("svg", {
    ...all, viewBox: `0 0 ${all.width} ${all.height}`, role: "img",
    "aria-label": "heat map: rows are the translation, columns the source",
  });
  const put = (text, options, end) => {
    const element = svg.appendChild(draw("text", { ...options, lang: DATA.tags[options["data-side"]] }));
    element.textContent = label(text);
    if (end) element.classList.add("end");
  };
  sources.forEach((unit, place) => {
    const x = left + (place + 0.5) * cell, y = top - 6;
    const options = { x, y, transform: `rotate(-45 ${x} ${y})`, "data-side": SOURCE, "data-place": place };
    put(unit, options, place === sources.length - 1);
  });
  const toTheRight = { "text-anchor": "end", "dominant-baseline": "central", direction: "ltr" };
  targets.forEach((unit, place) => {
    const options = { x: left - 8, y: top + (place + 0.5) * cell, "data-side": TARGET, "data-place": place };
    put(unit, { ...options, ...toTheRight }, candidate.e && place === targets.length - 1);
  });
  svg.append(draw("rect", { class: "ground", x: left, y: top, width, height }));
  candidate.w.forEach((row, t) => row.forEach((value, s) => {
    if (value < FAINT) return;
    const place = { x: left + s * cell, y: top + t * cell, width: cell, height: cell };
    svg.append(draw("rect", { class: "cell", ...place, "fill-opacity": weight(value, 3) }));
  }));
  const lines = [];
  for (let s = 0; s <= sources.length; s++) lines.push(`M${left + s * cell} ${top}v${height}`);
  for (let t = 0; t <= targets.length; t++) lines.push(`M${left} ${top + t * cell}h${width}`);
  svg.append(draw("path", { class: "grid", d: lines.join("") }));
  if (candidate.b) svg.append(draw("path", { class: "window", d: windowPath(candidate.b, cell, left, top) }));
  svg.append(draw("rect", { class: "band", visibility: "hidden" }));
  card.frame = { left, top, cell, width, height };
  return svg;
}

// --- pointing -------------------------------------------------------------------------------------------------------

// What each word of the other side has to do with the chosen one: [place, weight in thousandths].
function counterparts(candidate, side, place) {
  return side === TARGET ? candidate.w[place] : candidate.w.map((row) => row[place]);
}

function clear(card) {
  for (const word of card.body.querySelectorAll(".word")) {
    word.classList.remove("chosen", "hot", "outside");
    word.style.removeProperty("--w");
    word.lastChild.textContent = "";
  }
  for (const chosen of card.map.querySelectorAll("text.chosen")) chosen.classList.remove("chosen");
  card.map.querySelector(".band").setAttribute("visibility", "hidden");
  card.body.querySelector(".detail").replaceChildren();
}

function choose(card, side, place, cell = null) {
  clear(card);
  const candidate = candidateOf(card), other = side === TARGET ? SOURCE : TARGET;
  const values = counterparts(candidate, side, place);
  const span = side === TARGET && candidate.b ? candidate.b[place] : null;
  const find = (where, at) => card.body.querySelector(`.word[data-side="${where}"][data-place="${at}"]`);
  find(side, place).classList.add("chosen");
  values.forEach((value, at) => {
    const word = find(other, at);
    word.style.setProperty("--w", weight(value, 3));
    word.classList.toggle("hot", value >= HOT);
    word.classList.toggle("outside", span !== null && (at < span[0] || at > span[1]));
    word.lastChild.textContent = value >= FAINT ? weight(value, 2) : "";
  });
  if (cell !== null) find(other, cell).classList.add("chosen");
  markMap(card, side, place, cell);
  explain(card, side, place, values, cell);
}

function markMap(card, side, place, cell) {
  const { left, top, cell: size, width, height } = card.frame;
  const map = card.map, band = map.querySelector(".band"), other = side === TARGET ? SOURCE : TARGET;
  const box = side === TARGET
    ? { x: left, y: top + place * size, width, height: size }
    : { x: left + place * size, y: top, width: size, height };
  if (cell !== null) Object.assign(box, { x: left + cell * size, width: size });
  for (const [name, value] of Object.entries(box)) band.setAttribute(name, value);
  band.removeAttribute("visibility");
  map.querySelector(`text[data-side="${side}"][data-place="${place}"]`).classList.add("chosen");
  if (cell !== null) map.querySelector(`text[data-side="${other}"][data-place="${cell}"]`).classList.add("chosen");
}

function explain(card, side, place, values, cell) {
  const candidate = candidateOf(card), sources = card.sentence.s;
  const [mine, theirs] = side === TARGET ? [candidate.t, sources] : [sources, candidate.t];
  const other = side === TARGET ? SOURCE : TARGET;
  const ranked = values.map((value, at) => [value, at]).filter(([value, at]) => at === cell || value >= 10);
  ranked.sort((a, b) => (b[1] === cell) - (a[1] === cell) || b[0] - a[0]);
  const line = [bdi(side, mine[place]), side === TARGET ? " \u2190 " : " \u2192 "];
  ranked.slice(0, 6).forEach(([value, at], rank) => {
    if (rank) line.push(" \u00b7 ");
    line.push(bdi(other, theirs[at]), make("b", { text: ` ${weight(value, 3)}` }));
  });
  if (ranked.length > 6) line.push(make("span", { class: "weak", text: ` and ${ranked.length - 6} more` }));
  card.body.querySelector(".detail").replaceChildren(...line);
}

function restore(card) {
  const held = card.held;
  if (held) choose(card, held.side, held.place);
  else clear(card);
}

const cardOf = (element) => cards[element.closest("article").dataset.index];
const wordAt = (event) => (event.target instanceof Element ? event.target.closest(".word") : null);

function cellAt(card, event) {
  const { left, top, cell, width, height } = card.frame;
  const frame = card.map.firstChild.getBoundingClientRect();
  const x = event.clientX - frame.left - left, y = event.clientY - frame.top - top;
  return x >= 0 && y >= 0 && x < width && y < height ? { t: Math.floor(y / cell), s: Math.floor(x / cell) } : null;
}

list.addEventListener("pointerover", (event) => {
  const word = wordAt(event);
  if (word) choose(cardOf(word), word.dataset.side, Number(word.dataset.place));
});
list.addEventListener("pointerout", (event) => {
  const word = wordAt(event);
  if (word && !word.contains(event.relatedTarget)) restore(cardOf(word));
});
list.addEventListener("focusin", (event) => {
  const word = wordAt(event);
  if (word) choose(cardOf(word), word.dataset.side, Number(word.dataset.place));
});
list.addEventListener("focusout", (event) => {
  const word = wordAt(event);
  if (word && word.isConnected) restore(cardOf(word));
});
list.addEventListener("click", (event) => {
  const word = wordAt(event);
  if (!word) return;
  const card = cardOf(word), held = card.held, place = Number(word.dataset.place);
  const again = held && held.side === word.dataset.side && held.place === place;
  card.held = again ? null : { side: word.dataset.side, place };
  if (again) clear(card);
  else choose(card, word.dataset.side, place);
});
list.addEventListener("keydown", (event) => {
  const word = wordAt(event);
  if (!word) return;
  const card = cardOf(word);
  if (event.key === "Escape") {
    card.held = null;
    clear(card);
  }
  const forward = getComputedStyle(word.parentElement).direction === "rtl" ? "ArrowLeft" : "ArrowRight";
  const along = event.key === forward ? "nextElementSibling" : "previousElementSibling";
  const way = ["ArrowLeft", "ArrowRight"].includes(event.key) ? along : null;
  if (way && word[way]) word[way].focus();
  if (event.key === "ArrowUp" || event.key === "ArrowDown") {
    const rows = card.body.querySelectorAll(".words");
    const next = rows[event.key === "ArrowUp" ? 0 : 1].children;
    next[Math.min(Number(word.dataset.place), next.length - 1)].focus();
    event.preventDefault();
  }
});
list.addEventListener("pointermove", (event) => {
  const map = event.target instanceof Element ? event.target.closest(".map") : null;
  if (!map) return;
  const card = cardOf(map), cell = cellAt(card, event);
  if (cell) choose(card, TARGET, cell.t, cell.s);
  else restore(card);
});
list.addEventListener("pointerout", (event) => {
  const map = event.target instanceof Element ? event.target.closest(".map") : null;
  if (map && !map.contains(event.relatedTarget)) restore(cardOf(map));
});
list.addEventListener("change", (event) => {
  const card = cardOf(event.target);
  card.candidate = Number(event.target.value);
  fillBody(card);
});
