// @ts-check
/** The logical view: the request as it reads, sequence after sequence, block after block, each token in its slot. */
import { el, say, set } from "../../core/dom.js";
import { ended } from "../../core/reduce/state.js";
import { lines } from "./view.js";

/** @typedef {import("./view.js").View} View */

const QUIET = /^ +| +$|[\n\t\r]/g;
const MARKS = /** @type {Record<string, string>} */ ({ "\n": "↵", "\t": "⇥", "\r": "↵" });

/** A token's text with its outer spaces and its line ends made visible, quietly. @param {string} text @returns {(Node | string)[]} */
export function tokenText(text) {
  /** @type {(Node | string)[]} */
  const parts = [];
  let from = 0;
  for (const match of text.matchAll(QUIET)) {
    parts.push(text.slice(from, match.index));
    for (const mark of match[0])
      parts.push(mark === " " ? el("span", { class: "ws space" }, " ") : el("span", { class: "ws" }, MARKS[mark] ?? mark));
    from = match.index + match[0].length;
  }
  parts.push(text.slice(from));
  return parts.filter((part) => part !== "");
}

export class LogicalView {
  /** @param {{back: () => void, again: () => void}} acts what is offered once everything has ended */
  constructor(acts) {
    this.back = el("button", { type: "button", class: "figure-button" });
    this.back.addEventListener("click", acts.back);
    this.again = el("button", { type: "button", class: "figure-button" }, "Start again");
    this.again.addEventListener("click", acts.again);
    this.offer = el("span", { class: "offer" }, this.back, this.again);
    this.list = el("ol", { class: "log" });
    this.element = el("div", { class: "scroller" }, this.list);
    /** @type {{node: HTMLLIElement, key: string}[]} */
    this.rows = [];
    this.message = "";
  }

  /** @param {View} view @param {string} [instead] what to say in place of the text */
  update(view, instead = "") {
    const size = view.state.block_size;
    const shown = lines(view);
    const message = instead || (shown.length ? "" : whyEmpty(view));
    if (message !== this.message) {
      this.message = message;
      this.rows = [];
      this.list.replaceChildren();
      if (message) this.list.append(this.#message(view, message));
    }
    if (message) return;
    while (this.rows.length > shown.length) this.rows.pop()?.node.remove();
    shown.forEach((line, i) => {
      const { row } = line;
      const fresh = row && row.fresh !== Infinity ? row.fresh : -1;
      const key = JSON.stringify([line, fresh, size, row?.block === view.currentBlock]);
      let known = this.rows[i];
      if (known?.key === key) return;
      if (!known) {
        known = { node: el("li", { class: "lb" }), key: "" };
        this.rows.push(known);
        this.list.append(known.node);
      }
      known.key = key;
      if (line.heading) {
        set(known.node, { class: "of-sequence", "data-block": null });
        known.node.replaceChildren(line.heading);
      } else this.#row(known.node, line, size, view);
    });
  }

  /** The ways on once everything has ended: under what the request said. @param {string} back words, or "": not yet
   * @param {boolean} live */
  over(back, live) {
    this.offer.hidden = !back || this.message === "";
    say(this.back, back);
    this.again.hidden = !live;
    const last = this.list.lastElementChild;
    if (!this.offer.hidden && this.offer.parentNode !== last) last?.append(this.offer);
  }

  /** @param {HTMLLIElement} node @param {import("./view.js").Line} line @param {number} size @param {View} view */
  #row(node, { logical, row, ghost, text }, size, view) {
    const linked = node.classList.contains("linked") ? " linked" : "";
    const current = row && row.block === view.currentBlock ? " current" : "";
    if (node.classList.contains("of-sequence")) node.replaceChildren();
    set(node, { class: `lb${row ? "" : " next-block"}${current}${linked}`, "data-block": row ? row.block : null });
    while (node.childElementCount > size + 1) node.lastElementChild?.remove();
    if (!node.childElementCount) node.append(el("i"));
    const label = /** @type {Element} */ (node.firstElementChild);
    label.textContent = row ? String(logical) : "";
    for (let s = 0; s < size; s += 1) {
      let cell = node.children[s + 1];
      if (!cell) cell = node.appendChild(el("span"));
      const written = row?.texts[s];
      if (written !== undefined && row) fill(cell, row.fresh <= s ? "s now" : "s", written, JSON.stringify(written));
      else if (s === ghost) fill(cell, "s pending", text, `${JSON.stringify(text)}: picked, not yet written`);
      else fill(cell, "s held", "", "");
    }
  }

  /** @param {View} view @param {string} message */
  #message(view, message) {
    const { said, request } = view;
    const node = el("li", { class: "empty" }, message);
    if (said && request && ended(request)) node.append(el("q", {}, said));
    return node;
  }

  /** Brings a row into sight, within the list alone. @param {number} i */
  reveal(i) {
    const node = this.rows[i]?.node;
    if (!node) return;
    const box = this.element;
    const top = node.offsetTop - this.list.offsetTop;
    if (top + node.offsetHeight + this.list.offsetTop - box.offsetTop > box.scrollTop + box.clientHeight)
      box.scrollTop = top + node.offsetHeight + this.list.offsetTop - box.offsetTop - box.clientHeight + 4;
    else if (top < box.scrollTop) box.scrollTop = Math.max(0, top - 4);
  }
}

/** @param {Element} cell @param {string} name @param {string} text @param {string} title */
function fill(cell, name, text, title) {
  set(cell, { class: name, title: title || null });
  if (cell.textContent !== text || (text && !cell.firstChild)) cell.replaceChildren(...tokenText(text));
}

/** @param {View} view @returns {string} */
function whyEmpty(view) {
  const { request, names, focus } = view;
  if (focus < 0) return "Here the text will stand, token by token, four to a line.";
  const name = names.letter(focus);
  if (!request) return `${name} has not arrived yet at this point.`;
  if (request.status === "swapped") return `${name} waits in main memory: its blocks were needed for others.`;
  if (request.status === "waiting") return `${name} waits: no block is its own yet.`;
  if (request.status === "finished") return `${name} has ended, and all its blocks are free again. What it said:`;
  if (request.status === "aborted") return `${name} was given up, and all its blocks are free again.`;
  return `${name} runs from the next step on.`;
}
