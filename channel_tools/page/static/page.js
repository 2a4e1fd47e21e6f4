// SPDX-License-Identifier: BSD-3-Clause
// The search, and the channel's address if the page does not have it. Everything is inserted as text, not as HTML.
"use strict";

const SHOWN = 50;
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
    code.textContent = code.textContent.replace(/ -c CHANNEL(?= )/, () => ` -c ${channelAddress()}`);
  }
}

function found(words) {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  if (wanted.length === 0) return [];
  const rows = packageNames.filter((row) => wanted.every((word) => `${row[0]} ${row[2]}`.toLowerCase().includes(word)));
  const first = (row) => (row[0].startsWith(wanted[0]) ? 0 : 1);
  return rows.sort((one, other) => first(one) - first(other));
}

function show(input, count, list) {
  const rows = found(input.value);
  list.replaceChildren(...rows.slice(0, SHOWN).map((row) => {
    const link = document.createElement("a");
    link.href = `${root}page/name/${encodeURIComponent(row[0])}.html`;
    link.textContent = `${row[0]} ${row[1]}`;
    const item = document.createElement("li");
    item.append(link, row[2] ? ` ${row[2]}` : "");
    return item;
  }));
  const more = rows.length > SHOWN ? `, the first ${SHOWN} are shown` : "";
  count.textContent = input.value.trim() ? `${rows.length} packages found${more}` : "";
}

function startSearch() {
  const [box, input, count, list] = ["search", "search-words", "search-count", "search-found"].map((id) => document.getElementById(id));
  box.hidden = false;
  let names = null; // the script with all names, loaded when the user starts to search
  input.addEventListener("input", () => {
    if (names === null) {
      names = document.createElement("script");
      names.src = `${root}page/names.js`;
      names.addEventListener("load", () => show(input, count, list));
      names.addEventListener("error", () => { count.textContent = "The list of packages could not be loaded."; });
      document.head.append(names);
    } else if (typeof packageNames !== "undefined") {
      show(input, count, list);
    }
  });
}

sayAddress();
startSearch();
