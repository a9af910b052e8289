// @ts-check
/** The block table of a request: logical block, physical block, slots filled (section 4.2). */
import { el, say, set } from "../../core/dom.js";

/** @typedef {import("./view.js").View} View */

export class BlockTable {
  constructor() {
    this.body = el("tbody");
    const head = el("tr", {}, ...["logical", "physical", "filled"].map((name) => el("th", { scope: "col" }, name)));
    this.table = el("table", { class: "table" }, el("thead", {}, head), this.body);
    this.element = el("div", { class: "scroller" }, this.table);
    this.table.addEventListener("keydown", (event) => this.#move(event));
    this.at = 0;
  }

  /** @param {View} view @param {string} caption */
  update(view, caption) {
    set(this.table, { "aria-label": caption });
    const { rows, state } = view;
    while (this.body.rows.length > rows.length) this.body.deleteRow(-1);
    this.at = Math.min(this.at, Math.max(0, rows.length - 1));
    rows.forEach((row, i) => {
      let node = this.body.rows[i];
      if (!node) {
        node = el("tr", {}, el("td"), el("td", { class: "p" }), el("td"));
        this.body.append(node);
      }
      set(node, {
        "data-block": row.block,
        tabindex: i === this.at ? 0 : -1,
        "aria-current": row.block === view.currentBlock ? "true" : null,
      });
      node.classList.toggle("current", row.block === view.currentBlock);
      say(node.cells[0], String(i));
      say(node.cells[1], String(row.block));
      say(node.cells[2], `${row.texts.length}/${state.block_size}`);
    });
  }

  /** @param {KeyboardEvent} event */
  #move(event) {
    const last = this.body.rows.length - 1;
    const step = { ArrowUp: -1, ArrowDown: 1, Home: -last, End: last }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    this.at = Math.max(0, Math.min(last, this.at + step));
    [...this.body.rows].forEach((row, i) => set(row, { tabindex: i === this.at ? 0 : -1 }));
    this.body.rows[this.at]?.focus();
  }
}
