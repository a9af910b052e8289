// @ts-check
/** The prompt: what to ask, how many tokens at most, and what the server says when it cannot be. */
import { el, say, set, uid } from "../../core/dom.js";

const BUDGETS = [8, 16, 24, 32, 48];
const EXAMPLE = "Virtual memory lets a program";

export class Ask {
  /** @param {(prompt: string, maxTokens: number) => Promise<void>} submit rejects with what to say */
  constructor(submit) {
    this.submit = submit;
    this.busy = false;
    this.off = "";
    const trouble = uid("trouble");
    this.input = el("input", { type: "text", id: uid("prompt"), autocomplete: "off", enterkeyhint: "send", "aria-describedby": trouble });
    this.input.value = EXAMPLE;
    this.budget = el("select", { class: "figure-select", id: uid("budget") },
      ...BUDGETS.map((n) => el("option", { value: n, selected: n === 24 }, `${n} tokens`)));
    this.send = el("button", { type: "submit", class: "figure-button send" }, "Send");
    this.trouble = el("p", { class: "trouble calm", id: trouble, role: "status" });
    this.element = el("form", { class: "ask", novalidate: true },
      el("div", { class: "prompt" }, el("label", { for: this.input.id }, "Prompt"), this.input),
      el("div", { class: "budget" }, el("label", { for: this.budget.id }, "at most"), this.budget),
      this.send, this.trouble);
    this.element.addEventListener("submit", (event) => {
      event.preventDefault();
      void this.#ask();
    });
    this.input.addEventListener("input", () => this.say(""));
  }

  /** Sends what stands in the field, once however often it is pressed. */
  async #ask() {
    if (this.busy) return;
    if (this.off) {
      this.say(this.off, true);
      return;
    }
    this.busy = true;
    set(this.send, { "aria-disabled": "true" });
    this.say("");
    try {
      await this.submit(this.input.value, Number(this.budget.value));
    } catch (why) {
      this.say(why instanceof Error ? why.message : String(why), true);
    } finally {
      this.busy = false;
      this.refresh(this.label, this.off);
    }
  }

  label = "Send";

  /** @param {string} label of the button @param {string} off why nothing can be sent, or "" */
  refresh(label, off) {
    this.label = label;
    if (off !== this.off && this.trouble.textContent === this.off) this.say("");
    this.off = off;
    say(this.send, label);
    set(this.send, { "aria-disabled": off || this.busy ? "true" : null });
  }

  /** @param {string} words @param {boolean} [wrong] */
  say(words, wrong = false) {
    say(this.trouble, words);
    this.trouble.classList.toggle("calm", !wrong);
    set(this.input, { "aria-invalid": wrong ? "true" : null });
  }
}
