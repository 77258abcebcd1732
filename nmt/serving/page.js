// --- asking the server ----------------------------------------------------------------------------------------------

const field = document.getElementById("text");
const state = document.getElementById("state");
const complaint = document.getElementById("error");
let asked = null; // what is on its way; a new question gives it up

// What the server says of a sentence, as the cards have it.
function sentenceOf(entry, index) {
  const candidates = entry.n_best.map((one) => ({
    y: one.text, r: one.score, p: one.log_prob, l: one.length_limited, e: !one.length_limited, b: null,
    t: one.weights ? one.weights.target : null, w: one.weights ? one.weights.rows : null,
  }));
  return { n: index + 1, s: entry.source ?? null, x: entry.truncated, c: candidates };
}

function leadOf(card) {
  const candidate = candidateOf(card);
  card.lead.textContent = candidate.y || "(no words)";
  card.lead.lang = candidate.y ? DATA.tags[TARGET] : "en";
  card.lead.classList.toggle("warn", candidate.l);
}

function show(entries) {
  cards.length = 0;
  list.replaceChildren();
  entries.forEach((entry, index) => {
    const sentence = sentenceOf(entry, index), name = `line ${sentence.n}`;
    const card = { sentence, candidate: 0, held: null };
    card.article = make("article", { id: name.replace(" ", "-"), "data-index": cards.length, "aria-label": name });
    card.lead = make("p", { class: "translation", dir: "auto" });
    card.article.append(card.lead);
    cards.push(card);
    list.append(card.article);
    leadOf(card);
    fill(card);
  });
}

function complain(message) {
  complaint.textContent = message;
  complaint.hidden = message === "";
}

async function answerTo(text, signal) {
  const question = { text, n_best: Number(document.getElementById("n-best").value) };
  if (DATA.attends) question.weights = document.getElementById("pieces").checked ? "pieces" : "words";
  const options = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(question) };
  const response = await fetch("translate", { ...options, signal });
  let content = null;
  try {
    content = await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
  }
  if (response.ok && content) return content.translations;
  throw new Error(content?.error ?? `The server answered with status ${response.status}.`);
}

async function translate() {
  const text = field.value;
  if (!text.trim()) {
    field.focus();
    return;
  }
  asked?.abort();
  const mine = asked = new AbortController(), started = performance.now();
  document.body.classList.add("busy");
  state.textContent = "translating \u2026";
  complain("");
  try {
    const entries = await answerTo(text, mine.signal);
    if (mine !== asked) return;
    show(entries);
    const seconds = ((performance.now() - started) / 1000).toFixed(2);
    state.textContent = `${entries.length} ${entries.length === 1 ? "sentence" : "sentences"} in ${seconds} s`;
  } catch (error) {
    if (mine !== asked) return;
    state.textContent = "";
    complain(error instanceof TypeError ? "The server cannot be reached. Is nmt serve still running?" : error.message);
  } finally {
    if (mine === asked) document.body.classList.remove("busy");
  }
}

field.focus();
document.body.classList.toggle("plain-model", !DATA.attends);
document.getElementById("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  translate();
});
field.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  translate();
});
for (const name of ["n-best", "pieces"]) {
  document.getElementById(name).addEventListener("change", () => { if (list.firstChild) translate(); });
}
list.addEventListener("change", (event) => leadOf(cardOf(event.target)));
