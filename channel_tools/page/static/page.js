// SPDX-License-Identifier: BSD-3-Clause
// The search, buttons that copy commands, and the channel's address if the page does not have it. Everything is
// inserted as text, not as HTML.
"use strict";

const SHOWN = 30;
const RANKS = 8;
const SPECIAL = /[.*+?^${}()|[\]\\]/g;
const SHOWN_AGAIN_MS = 2000;
const root = document.body.dataset.root;

function channelAddress() {
  const address = new URL(root || ".", location.href);
  const path = address.pathname.replace(/index\.html$/, "").replace(/\/$/, "");
  const origin = address.protocol === "file:" ? "file://" : address.origin;
  return origin + path.replace(/\/t\/[^/]+\//, "/t/TOKEN/"); // never show a token
}

function sayAddress() {
  for (const unsaid of document.querySelectorAll(".say-address")) unsaid.hidden = true;
  for (const code of document.querySelectorAll(".commands code")) {
    for (const node of code.childNodes) { // the text of elements in it has no address
      if (node.nodeType !== Node.TEXT_NODE) continue;
      node.data = node.data.replace(/ -c CHANNEL(?= )/, () => ` -c ${channelAddress()}`);
    }
  }
}

function offerCopies() {
  if (!navigator.clipboard) return; // a page that was not loaded over https
  for (const code of document.querySelectorAll(".commands code")) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Copy";
    button.setAttribute("aria-live", "polite");
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "Copied";
      } catch {
        button.textContent = "Not allowed";
      }
      setTimeout(() => { button.textContent = "Copy"; }, SHOWN_AGAIN_MS);
    });
    code.parentElement.before(button);
    code.parentElement.parentElement.classList.add("copied");
  }
}

let searched = null; // [name, version, summary, own] and what to look in, for each package

function wordsOf(text) {
  return text.toLowerCase().split(/\s+/).filter(Boolean);
}

function found(wanted) {
  if (wanted.length === 0) return [];
  searched ??= packageNames.map((row) => [row, row[0].toLowerCase(), `${row[0]} ${row[2]}`.toLowerCase()]);
  const rank = ([row, name]) => {
    if (name === wanted[0]) return 0;
    const inName = name.startsWith(wanted[0]) ? 1 : name.includes(wanted[0]) ? 2 : 3;
    return 2 * inName + (row[3] ? 0 : 1); // the channel's own first
  };
  const hits = Array.from({ length: RANKS }, () => []);
  for (const one of searched) {
    if (wanted.every((word) => one[2].includes(word))) hits[rank(one)].push(one[0]);
  }
  return hits.flat();
}

function element(tag, text, className = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  if (className) made.className = className;
  return made;
}

// an element whose text has the words that were searched marked
function marked(tag, text, wanted) {
  const made = document.createElement(tag);
  const any = new RegExp(`(${wanted.map((word) => word.replace(SPECIAL, "\\$&")).join("|")})`, "i");
  made.append(...text.split(any).map((part, at) => (at % 2 ? element("mark", part) : part)));
  return made;
}

function show(input, panel, count, list) {
  const wanted = wordsOf(input.value);
  const rows = found(wanted);
  list.replaceChildren(...rows.slice(0, SHOWN).map((row) => {
    const link = document.createElement("a");
    link.href = `${root}page/name/${encodeURIComponent(row[0])}.html`;
    link.append(marked("b", row[0], wanted), ` ${row[1]}`);
    if (!row[3]) link.append(" ", element("span", "foundation", "chip"));
    if (row[2]) link.append(" ", marked("small", row[2], wanted));
    const item = document.createElement("li");
    item.append(link);
    return item;
  }));
  const more = rows.length > SHOWN ? `, the first ${SHOWN} are shown` : "";
  const said = wanted.length > 0;
  count.textContent = said ? `${rows.length} ${rows.length === 1 ? "package" : "packages"} found${more}` : "";
  panel.hidden = !said;
}

function moveWith(key, box) {
  const places = [...box.querySelectorAll("input, #search-found a")];
  const next = places.indexOf(document.activeElement) + (key === "ArrowDown" ? 1 : -1);
  if (places[next]) places[next].focus();
}

function startSearch() {
  const [box, input, panel, count, list] = ["search", "search-words", "search-panel", "search-count", "search-found"]
    .map((id) => document.getElementById(id));
  box.hidden = false;
  let names = null; // the script with all names, loaded when the user goes to the search
  const load = () => {
    if (names !== null) return;
    names = document.createElement("script");
    names.src = `${root}page/names.js`;
    names.addEventListener("load", () => show(input, panel, count, list)); // of what was typed meanwhile
    names.addEventListener("error", () => {
      names = null; // the next key tries again
      count.textContent = "The list of packages could not be loaded.";
      panel.hidden = false;
    });
    document.head.append(names);
  };
  input.addEventListener("focus", load);
  input.addEventListener("input", () => {
    load();
    if (typeof packageNames !== "undefined") show(input, panel, count, list);
  });
  box.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      input.focus(); // which shows the panel
      panel.hidden = true;
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      moveWith(event.key, box);
    }
  });
  box.addEventListener("focusout", (event) => { if (!box.contains(event.relatedTarget)) panel.hidden = true; });
  input.addEventListener("focus", () => { panel.hidden = list.childElementCount === 0 || input.value.trim() === ""; });
  document.addEventListener("keydown", (event) => {
    const writing = event.target.closest("input:not([type=radio]), textarea, select, [contenteditable]");
    if (event.key !== "/" || writing || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    input.focus();
  });
}

sayAddress();
offerCopies();
startSearch();
