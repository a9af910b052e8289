// @ts-check
/** Which request is read: one tab each, arrow keys between them. */
import { el } from "../../core/dom.js";

/** @typedef {import("./view.js").View} View */

export class Tabs {
  /** @param {string} panel id of what they change @param {(request: number) => void} chosen */
  constructor(panel, chosen) {
    this.panel = panel;
    this.chosen = chosen;
    this.element = el("div", { class: "tabs", role: "tablist", "aria-label": "Request that is read" });
    this.key = "";
    this.element.addEventListener("keydown", (event) => this.#move(event));
  }

  /** @param {View} view @param {number[]} requests */
  update(view, requests) {
    const over = requests.map((n) => view.state.requests.find((r) => r.request === n)?.status ?? "to come");
    const key = JSON.stringify([requests, over, view.focus, view.names.offset]);
    if (key === this.key) return;
    this.key = key;
    const focused = this.element.contains(document.activeElement);
    this.element.replaceChildren(...requests.map((request, i) => {
      const selected = request === view.focus;
      const letter = view.names.letter(request);
      const ended = over[i] === "finished" || over[i] === "aborted" || over[i] === "to come";
      const tab = el("button", {
        type: "button",
        role: "tab",
        class: `${view.names.hue(request)}${ended ? " over" : ""}`,
        "aria-selected": String(selected),
        "aria-controls": this.panel,
        "aria-label": `Request ${letter}, ${over[i]}`,
        tabindex: selected || (view.focus < 0 && i === 0) ? 0 : -1,
      }, el("span", {}, letter));
      tab.addEventListener("click", () => this.chosen(request));
      return tab;
    }));
    if (focused) /** @type {HTMLElement | null} */ (this.element.querySelector("[aria-selected='true']"))?.focus();
  }

  /** @param {KeyboardEvent} event */
  #move(event) {
    const tabs = /** @type {HTMLElement[]} */ ([...this.element.children]);
    const at = tabs.findIndex((tab) => tab === document.activeElement);
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -at, End: tabs.length - 1 - at }[event.key];
    if (step === undefined || at < 0) return;
    event.preventDefault();
    event.stopPropagation();
    const next = tabs[(at + step + tabs.length) % tabs.length];
    next.focus();
    next.click();
  }
}

