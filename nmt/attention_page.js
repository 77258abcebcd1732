// --- the list -------------------------------------------------------------------------------------------------------

// Sentences are filled in when they come near the screen, so that a page of thousands opens at once.
const near = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    near.unobserve(entry.target);
    fill(cards[entry.target.dataset.index]);
  }
}, { rootMargin: "1200px 0px" });

cards.forEach((card, index) => {
  const sentence = card.sentence;
  const name = `line ${sentence.n}`;
  const article = make("article", { id: name.replace(" ", "-"), "data-index": index, "aria-label": name });
  article.style.minHeight = `${260 + cellSize(sentence.s.length) * sentence.c[0].t.length}px`;
  card.article = article;
  const texts = sentence.c.flatMap((one) => [one.y, one.t.join(" ")]);
  card.text = [sentence.s.join(" "), ...texts].join("\n").toLowerCase();
  list.append(article);
  near.observe(article);
});

const ORDERS = {
  number: (a, b) => a.n - b.n,
  short: (a, b) => a.s.length - b.s.length || a.n - b.n,
  long: (a, b) => b.s.length - a.s.length || a.n - b.n,
  worst: (a, b) => a.c[0].r - b.c[0].r || a.n - b.n,
  best: (a, b) => b.c[0].r - a.c[0].r || a.n - b.n,
};

function filter() {
  const wanted = document.getElementById("find").value.trim().toLowerCase();
  let shown = 0;
  for (const card of cards) {
    const found = card.text.includes(wanted);
    card.article.hidden = !found;
    shown += found;
  }
  const total = cards.length, noun = total === 1 ? "sentence" : "sentences";
  document.getElementById("count").textContent = shown === total ? `${total} ${noun}` : `${shown} of ${total} ${noun}`;
  document.getElementById("nothing").hidden = shown > 0;
}

document.getElementById("find").addEventListener("input", filter);
document.getElementById("sort").addEventListener("change", (event) => {
  const order = ORDERS[event.target.value];
  const sorted = [...cards].sort((a, b) => order(a.sentence, b.sentence));
  list.append(...sorted.map((card) => card.article));
});
document.getElementById("maps").addEventListener("change", (event) => {
  document.body.classList.toggle("plain", !event.target.checked);
});
document.querySelector(".tools").addEventListener("submit", (event) => event.preventDefault());
window.addEventListener("beforeprint", () => cards.forEach(fill));

filter();
if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
