// @ts-check
/** The line above the figure: where what is shown comes from, how far the model has loaded, and the block size. */
import { el, say, set, uid } from "../../core/dom.js";

/** Block sizes on offer and the number of blocks that goes with each. */
export const SHAPES = /** @type {Record<number, number>} */ ({ 4: 48, 8: 24, 16: 12, 32: 8 });

/** @typedef {{kind: "live" | "recorded" | "waiting", title: string, words: string, progress: number | null, action: string}} Source */

/** A model in one line, with its honest remarks; the kernel as the dispatch names it, without its short name.
 * @param {import("../../core/types.js").ModelInfo} model */
export function modelLine(model) {
  return [model.name, model.dtype, model.attention.replace(/^\w+: /, ""), model.label].filter(Boolean).join(", ");
}

export class Head {
  /** @param {(size: number) => void} sized @param {() => void} acted */
  constructor(sized, acted) {
    this.title = el("b");
    this.words = el("span");
    this.progress = el("progress", { max: 1, "aria-label": "Loading the model", hidden: true });
    this.action = el("button", { type: "button", class: "figure-button", hidden: true });
    this.action.addEventListener("click", acted);
    this.source = el("div", { class: "source" }, el("span", { class: "dot", "aria-hidden": "true" }),
      el("span", { class: "words", role: "status" }, this.title, " ", this.words), this.progress, this.action);
    const name = uid("size");
    this.radios = Object.keys(SHAPES).map((size) => el("input", { type: "radio", name, value: size, checked: size === "4" }));
    this.sizes = el("fieldset", { class: "sizes" }, el("legend", {}, "Slots to a block"),
      ...this.radios.map((radio) => el("label", {}, radio, el("span", {}, radio.value))));
    for (const radio of this.radios) radio.addEventListener("change", () => sized(Number(radio.value)));
    this.element = el("div", { class: "bt-head" }, this.source, this.sizes);
  }

  /** @param {Source} source @param {number} size @param {boolean} sizable */
  update(source, size, sizable) {
    set(this.source, { "data-kind": source.kind });
    say(this.title, source.title);
    say(this.words, source.words);
    this.progress.hidden = source.progress === null;
    if (source.progress !== null) this.progress.value = source.progress;
    this.action.hidden = !source.action;
    say(this.action, source.action);
    for (const radio of this.radios) {
      radio.checked = Number(radio.value) === size;
      radio.disabled = !sizable;
    }
  }
}
