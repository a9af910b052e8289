// @ts-check
/** The event ticker: what has just happened between what came before and what comes next, and as a sentence. */
import { el, say } from "../../core/dom.js";
import { sentence, short } from "../../core/words.js";

/** @typedef {import("./view.js").View} View */

export class Ticker {
  constructor() {
    this.previous = el("span", { class: "prev", "aria-hidden": "true" });
    this.now = el("span", { class: "now" });
    this.next = el("span", { class: "next", "aria-hidden": "true" });
    this.say = el("span", { class: "say" });
    this.element = el("div", { class: "event" }, this.previous, this.now, this.next, this.say);
    /** @type {unknown[]} */
    this.shown = [];
  }

  /**
   * @param {View} view @param {string} instead what to say in place of the event's sentence, or ""
   * @param {boolean} [quiet] no event is named, only said what there is to say
   */
  update(view, instead, quiet = false) {
    const { previous, event, next, state, names } = view;
    if (this.shown[0] === event && this.shown[1] === next && this.shown[2] === instead && this.shown[3] === state && this.shown[4] === quiet) return;
    this.shown = [event, next, instead, state, quiet];
    this.#line(this.previous, quiet ? undefined : previous, state, view);
    this.#line(this.now, quiet ? undefined : event, state, view);
    this.#line(this.next, quiet ? undefined : next, view.nextState, view);
    say(this.say, instead || (event ? sentence(event, state, names) : ""));
  }

  /** @param {HTMLElement} place @param {import("../../core/types.js").AnyEvent | undefined} event
   * @param {import("../../core/types.js").ArenaState} state @param {View} view */
  #line(place, event, state, view) {
    if (!event) {
      place.replaceChildren();
      return;
    }
    const { name, rest } = short(event, state);
    const parts = rest.map((part) =>
      typeof part === "string"
        ? part
        : part.request < 0 ? "" : el("i", { class: view.names.hue(part.request) }, view.names.letter(part.request)));
    place.replaceChildren(`${name}  `, ...(place === this.now ? [el("span", { class: "plain" }, ...parts)] : parts));
  }
}
