// @ts-check
/** The GPU's memory: every physical block with every slot, wherever the table sends a request. */
import { el, say, set, svg, uid } from "../../core/dom.js";
import { plural } from "../../core/words.js";
import { corner, frame, geometry, slotBox } from "./geometry.js";

/** @typedef {import("./view.js").View} View */
/** @typedef {{node: SVGGElement, number: SVGTextElement, who: SVGTextElement, slots: SVGRectElement[], key: string}} Cell */

const KEYS = /** @type {Record<string, (columns: number) => number>} */ ({
  ArrowLeft: () => -1,
  ArrowRight: () => 1,
  ArrowUp: (columns) => -columns,
  ArrowDown: (columns) => columns,
  Home: () => -1e9,
  End: () => 1e9,
});

export class MemoryView {
  constructor() {
    this.dots = uid("dots");
    this.stripes = uid("stripes");
    this.definitions = svg("defs");
    this.svg = svg("svg", { class: "memory", role: "group" }, this.definitions);
    this.element = el("div", { class: "memory-box" }, this.svg);
    /** @type {Cell[]} */
    this.cells = [];
    this.at = 0;
    this.shape = "";
    /** @type {View | null} */
    this.view = null;
    this.geometry = geometry(4, 48, 480);
    this.svg.addEventListener("keydown", (event) => this.#move(event));
    this.observer = new ResizeObserver(() => {
      if (this.view) this.update(this.view);
    });
    this.observer.observe(this.element);
  }

  /** @param {View} view */
  update(view) {
    this.view = view;
    const { num_blocks, block_size } = view.state;
    const width = Math.round(this.element.clientWidth);
    if (!width) return;
    const shape = `${block_size} ${num_blocks} ${width}`;
    if (shape !== this.shape) {
      this.shape = shape;
      this.#build(block_size, num_blocks, width);
    }
    const filled = new Map(view.state.blocks.map((b) => [b.block, b]));
    const used = view.state.blocks.filter((b) => b.refs > 0).length;
    set(this.svg, { "aria-label": `Physical blocks: ${plural(num_blocks - used, "block")} of ${num_blocks} free. Arrow keys move between blocks.` });
    this.cells.forEach((cell, block) => this.#cell(cell, block, filled.get(block), view));
  }

  /** @param {number} size @param {number} count @param {number} width */
  #build(size, count, width) {
    const g = geometry(size, count, width);
    this.geometry = g;
    const dots = svg("pattern", { id: this.dots, class: "dots", width: 5, height: 5, patternUnits: "userSpaceOnUse" },
      svg("circle", { cx: 2.5, cy: 2.5, r: 0.8 }));
    this.definitions.replaceChildren(dots);
    this.at = Math.min(this.at, count - 1);
    this.cells = Array.from({ length: count }, (_, block) => {
      const [x, y] = corner(g, block);
      const number = svg("text", { x: 0, y: 10 }, String(block));
      const who = svg("text", { x: String(block).length * 6.7 + 6, y: 10 });
      const slots = Array.from({ length: size }, (_, s) => svg("rect", { class: "slot", ...slotBox(g, s), fill: "none" }));
      const box = frame(g);
      const node = svg("g", { transform: `translate(${x} ${y})`, "data-block": block, role: "img", tabindex: block === this.at ? 0 : -1 },
        svg("rect", { class: "hit", ...box }), number, who, ...slots, svg("rect", { class: "frame", rx: 2, ...box }));
      return { node, number, who, slots, key: "" };
    });
    set(this.svg, { viewBox: `0 0 ${width} ${Math.ceil(g.height)}`, width, height: Math.ceil(g.height) });
    this.svg.replaceChildren(this.definitions, ...this.cells.map((cell) => cell.node));
  }

  /** @param {Cell} cell @param {number} block @param {import("../../core/types.js").BlockState | undefined} content @param {View} view */
  #cell(cell, block, content, view) {
    const holders = content ? view.owners.get(block) ?? [] : [];
    const requests = [...new Set(holders.map((o) => o.request))];
    const written = content?.tokens.length ?? 0;
    const fresh = view.fresh.get(block) ?? Infinity;
    const refs = content?.refs ?? 0;
    const current = block === view.currentBlock;
    const key = `${requests} ${view.names.offset} ${written} ${fresh} ${refs} ${current} ${holders[0]?.logical} ${content?.hash}`;
    if (key === cell.key) return;
    cell.key = key;
    const shared = requests.length > 1;
    cell.node.classList.toggle("owned", refs > 0);
    cell.node.classList.toggle("cached", refs === 0 && written > 0);
    cell.node.classList.toggle("shared", shared);
    cell.node.classList.toggle("current", current);
    for (const name of [...cell.node.classList]) if (name.startsWith("hue-")) cell.node.classList.remove(name);
    if (requests.length) cell.node.classList.add(view.names.hue(requests[0]));
    say(cell.who, refs > 1 ? `×${refs}` : requests.length ? view.names.letter(requests[0]) : "");
    const stripes = shared ? `url(#${this.#stripe(requests, view)})` : "none";
    cell.slots.forEach((slot, s) => {
      const full = s < written;
      set(slot, {
        class: full ? (s >= fresh ? "slot full fresh" : "slot full") : "slot",
        fill: full ? stripes : refs ? `url(#${this.dots})` : "none",
      });
    });
    set(cell.node, { "aria-label": explain(block, view) });
  }

  /** The pattern of a shared block: diagonal stripes in the hues of its sharers. @param {number[]} requests @param {View} view */
  #stripe(requests, view) {
    const hues = [...new Set(requests.map((r) => view.names.hue(r)))];
    const id = `${this.stripes}-${hues.join("-")}`;
    if (!this.definitions.querySelector(`#${id}`))
      this.definitions.append(svg("pattern",
        { id, width: hues.length * 3, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
        ...hues.map((hue, i) => svg("rect", { class: `stripe ${hue}`, x: i * 3, width: 3, height: 6 }))));
    return id;
  }

  /** @param {KeyboardEvent} event */
  #move(event) {
    const key = KEYS[event.key];
    if (!key || !this.cells.length) return;
    event.preventDefault();
    event.stopPropagation();
    const to = this.at + key(this.geometry.columns);
    this.at = Math.max(0, Math.min(this.cells.length - 1, to));
    this.cells.forEach((cell, i) => set(cell.node, { tabindex: i === this.at ? 0 : -1 }));
    this.cells[this.at].node.focus({ preventScroll: false });
  }

  stop() {
    this.observer.disconnect();
  }
}

/** A physical block in words. @param {number} block @param {View} view @returns {string} */
export function explain(block, view) {
  const content = view.state.blocks.find((b) => b.block === block);
  if (!content) return `block ${block}, free`;
  const holders = view.owners.get(block) ?? [];
  const whose = [...new Set(holders.map((o) => `${view.names.letter(o.request)}’s logical ${o.logical}`))].join(" and ");
  const shown = content.texts.join("").replaceAll("\n", "↵");
  if (!content.refs) return `block ${block}, free, kept by the prefix cache: “${shown}”`;
  const shared = content.refs > 1 ? `, ${content.refs} references` : "";
  return `block ${block}${whose ? ` is ${whose}` : ""}${shared}, ${content.tokens.length} of ${view.state.block_size} filled${shown ? `: “${shown}”` : ""}`;
}
