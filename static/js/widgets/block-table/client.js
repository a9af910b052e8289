// @ts-check
/** A client of one's own in this memory: a command to copy, which the figure's arena takes as one more request. */
import { el, say } from "../../core/dom.js";

const PROMPT = "A page table maps";
const MOST = 24;

/** A word as a POSIX shell takes it literally. @param {string} text */
function quote(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/** @param {string} origin @param {string} secret @param {string} model @returns {string} */
export function command(origin, secret, model) {
  const body = JSON.stringify({ model, prompt: PROMPT, max_tokens: MOST });
  return [`curl ${origin}/v1/completions`, `-H 'Content-Type: application/json'`, `-H ${quote(`X-Arena: ${secret}`)}`, `-d ${quote(body)}`]
    .join(" \\\n  ");
}

export class OwnClient {
  constructor() {
    this.code = el("code");
    this.box = el("pre", { tabindex: 0, "aria-label": "The command" }, this.code);
    this.copy = el("button", { type: "button", class: "figure-button" }, "Copy the command");
    this.copied = el("span", { class: "copied", role: "status" });
    this.copy.addEventListener("click", () => void this.#copy());
    this.base = el("code");
    this.live = el("div", {},
      el("p", {}, "Any OpenAI client can put a request into this very memory. It gets the next letter and a hue, and shares every step with those that run:"),
      this.box,
      el("p", { class: "copy" }, this.copy, this.copied),
      el("p", {}, "While this memory is paused, it takes the request and lets it wait, and so does the client: press Play. In a client library, the base address is ",
        this.base, ", the key is anything, and the header X-Arena goes with every request. The secret in that header drives this memory and no other, and ends with this page."));
    this.off = el("p");
    this.element = el("details", { class: "own-client" }, el("summary", {}, "Watch your own client in this memory"), this.live, this.off);
  }

  /**
   * @param {{secret: string, model: string} | null} memory the one to be driven, or null @param {string} why there is none
   */
  update(memory, why) {
    this.live.hidden = !memory;
    this.off.hidden = Boolean(memory);
    if (!memory) {
      say(this.off, why);
      return;
    }
    const text = command(location.origin, memory.secret, memory.model);
    if (this.code.textContent === text) return;
    say(this.code, text);
    say(this.base, `${location.origin}/v1`);
    say(this.copied, "");
  }

  /** To the clipboard; where a page may not reach it (plain http from elsewhere), the command is selected instead. */
  async #copy() {
    say(this.copied, "");
    try {
      await navigator.clipboard.writeText(this.code.textContent ?? "");
      say(this.copied, "Copied. Paste it into a terminal.");
    } catch {
      getSelection()?.selectAllChildren(this.code);
      this.box.focus();
      say(this.copied, "The browser does not let this page copy; the command is selected.");
    }
  }
}
