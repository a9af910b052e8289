// @ts-check
/** Pointing at a block anywhere lights it up everywhere: its logical row, its line in the table, its place in memory. */

export class Links {
  /** @param {HTMLElement} stage @param {(block: number) => void} shown called with the block, or -1
   * @param {(block: number) => void} chosen called when a block is clicked */
  constructor(stage, shown, chosen) {
    this.stage = stage;
    this.shown = shown;
    this.block = -1;
    this.pinned = -1;
    const at = (/** @type {EventTarget | null} */ target) => {
      const node = target instanceof Element ? target.closest("[data-block]") : null;
      return node ? Number(node.getAttribute("data-block")) : -1;
    };
    stage.addEventListener("pointerover", (event) => {
      if (event.pointerType === "mouse") this.#show(at(event.target));
    });
    stage.addEventListener("pointerleave", (event) => {
      if (event.pointerType === "mouse") this.#show(this.pinned);
    });
    stage.addEventListener("focusin", (event) => {
      if (at(event.target) >= 0) this.#show(at(event.target));
    });
    stage.addEventListener("focusout", () => this.#show(this.pinned));
    stage.addEventListener("click", (event) => {
      const block = at(event.target);
      this.pinned = block === this.pinned ? -1 : block;
      this.#show(block);
      if (block >= 0) chosen(block);
    });
  }

  /** @param {number} block */
  #show(block) {
    if (block < 0) block = this.pinned;
    if (block === this.block) return;
    this.block = block;
    this.apply();
    this.shown(block);
  }

  /** After a redraw, and after a change: marks what belongs together. */
  apply() {
    for (const node of this.stage.querySelectorAll("[data-block]"))
      node.classList.toggle("linked", Number(node.getAttribute("data-block")) === this.block && this.block >= 0);
  }

  clear() {
    this.pinned = -1;
    this.#show(-1);
  }
}
