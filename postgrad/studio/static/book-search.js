// Search over window.bookIndex: rows of address, title, kind, text. Every word must begin a word there; a title counts more than the text.
"use strict";

const root = new URL("..", document.currentScript.src);  // the folder that holds static/
const { exported } = studio;
const MOST = 40, AROUND = 70;

const address = (path) => {
  if (!exported) return path;
  const [place, mark] = path.split("#");
  return new URL(`${place.replace(/^\//, "")}/index.html${mark ? `#${mark}` : ""}`, root).href;
};

/** Where a word is begun in a text, from a place on: "lora" is in "LoRA, QLoRA" once, and not in "exploration". */
function begins(text, word, from = 0) {
  for (let at = text.indexOf(word, from); at >= 0; at = text.indexOf(word, at + 1)) {
    if (at === 0 || !/[\p{L}\p{N}]/u.test(text[at - 1]) || !/[\p{L}\p{N}]/u.test(word[0])) return at;
  }
  return -1;
}

function count(text, word) {
  let found = 0;
  for (let at = begins(text, word); at >= 0; at = begins(text, word, at + 1)) found += 1;
  return found;
}

function score([, title, , text], words) {
  const name = title.toLowerCase(), body = text.toLowerCase();
  let sum = 0;
  for (const word of words) {
    if (name === word) sum += 20;
    else if (begins(name, word) >= 0) sum += 8;
    else if (begins(body, word) >= 0) sum += Math.min(3, count(body, word));
    else return 0;
  }
  return sum;
}

/** The text around the first word that is met, with every word marked. */
function excerpt(text, words) {
  const span = document.createElement("span"), low = text.toLowerCase();
  const places = words.map((word) => begins(low, word)).filter((at) => at >= 0);
  const first = places.length ? Math.min(...places) : 0;
  const from = Math.max(0, first - AROUND), to = Math.min(text.length, first + 2 * AROUND);
  let at = from;
  if (from > 0) span.append("… ");
  while (at < to) {
    const hits = words.map((word) => [begins(low, word, at), word.length]).filter(([place]) => place >= 0 && place < to);
    if (!hits.length) break;
    const [place, length] = hits.reduce((a, b) => (a[0] <= b[0] ? a : b));
    const mark = document.createElement("mark");
    mark.textContent = text.slice(place, place + length);
    span.append(text.slice(at, place), mark);
    at = place + length;
  }
  span.append(text.slice(at, Math.max(at, to)), to < text.length ? " …" : "");
  return span;
}

function search(query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const found = words.length ? window.bookIndex.map((row) => [score(row, words), row]).filter(([sum]) => sum)
    .sort((a, b) => b[0] - a[0]) : [];
  document.getElementById("book-found").textContent = !words.length ? "Type what you look for."
    : `${found.length || "No"} place${found.length === 1 ? "" : "s"} with “${query.trim()}”${found.length > MOST ? `; the first ${MOST}` : ""}`;
  document.getElementById("book-results").replaceChildren(...found.slice(0, MOST).map(([, row]) => {
    const item = document.createElement("li"), link = document.createElement("a"), title = document.createElement("strong"), kind = document.createElement("span");
    link.href = address(row[0]);
    title.textContent = row[1];
    kind.textContent = row[2];
    link.append(title, kind, excerpt(row[3], words));
    item.append(link);
    return item;
  }));
}

document.addEventListener("DOMContentLoaded", () => {
  const input = document.getElementById("book-q");
  input.value = new URLSearchParams(location.search).get("q") || "";
  input.addEventListener("input", () => {
    search(input.value);
    const here = new URL(location.href);
    here.searchParams.set("q", input.value);
    clearTimeout(search.later);  // browsers refuse a flood of replaceState
    search.later = setTimeout(() => history.replaceState(history.state, "", here), 200);
  });
  input.form.addEventListener("submit", (event) => event.preventDefault());
  search(input.value);
  if (input.value === "") input.focus();
});
