// @ts-check
/** The block tables of a request, one for each sequence: logical block, physical block, slots filled (section 4.2). */
import { el, say, set } from "../../core/dom.js";
import { lines } from "./view.js";

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
    const { state } = view;
    const shown = lines(view).filter((line) => line.heading || line.row);
    while (this.body.rows.length > shown.length) this.body.deleteRow(-1);
    const blocks = shown.filter((line) => line.row).length;
    this.at = Math.min(this.at, Math.max(0, blocks - 1));
    let at = 0;
    shown.forEach(({ heading, logical, row }, i) => {
      let node = this.body.rows[i];
      if (!node || node.classList.contains("of-sequence") !== Boolean(heading)) {
        const made = heading
          ? el("tr", { class: "of-sequence" }, el("th", { colspan: 3, scope: "colgroup" }))
          : el("tr", {}, el("td"), el("td", { class: "p" }), el("td"));
        if (node) node.replaceWith(made);
        else this.body.append(made);
        node = made;
      }
      if (!row) {
        say(node.cells[0], heading);
        return;
      }
      const current = row.block === view.currentBlock;
      set(node, { "data-block": row.block, tabindex: at === this.at ? 0 : -1, "aria-current": current ? "true" : null });
      at += 1;
      node.classList.toggle("current", current);
      say(node.cells[0], String(logical));
      say(node.cells[1], String(row.block));
      say(node.cells[2], `${row.texts.length}/${state.block_size}`);
    });
  }

  /** @param {KeyboardEvent} event */
  #move(event) {
    const rows = [...this.body.rows].filter((row) => row.hasAttribute("data-block"));
    const last = rows.length - 1;
    const step = { ArrowUp: -1, ArrowDown: 1, Home: -last, End: last }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    this.at = Math.max(0, Math.min(last, this.at + step));
    rows.forEach((row, i) => set(row, { tabindex: i === this.at ? 0 : -1 }));
    rows[this.at]?.focus();
  }
}
