// @ts-check
/** The scrubber: a real range input under a drawn time line, one tick an event and a taller one where a step ends. */
import { el, set, svg } from "./dom.js";

/** @typedef {import("./transport.js").Transport} Transport */

const PAD = 8;
const MIDDLE = 22;
const LEAST_GAP = 3.5;

export class Scrubber {
  /** @param {() => Transport | null} transport */
  constructor(transport) {
    this.transport = transport;
    this.input = el("input", { type: "range", min: 0, max: 0, step: 1, value: 0, "aria-label": "Event" });
    this.lines = ["line", "ahead", "past", "steps-ahead", "steps-past"].map((name) => svg("path", { class: name }));
    this.head = svg("rect", { class: "head", y: 6, width: 2.5, height: 32 });
    this.svg = svg("svg", { "aria-hidden": "true" }, ...this.lines, this.head);
    this.element = el("div", { class: "scrub" }, this.svg, this.input);
    this.key = "";
    this.width = 0;
    this.input.addEventListener("input", () => this.transport()?.seek(Number(this.input.value)));
    this.input.addEventListener("keydown", (event) => this.#key(event));
    this.observer = new ResizeObserver(() => {
      const transport = this.transport();
      if (transport) this.update(transport, this.input.getAttribute("aria-valuetext") ?? "");
    });
    this.observer.observe(this.element);
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const transport = this.transport();
    if (!transport) return;
    if (event.key === "PageUp") transport.seekStep(1);
    else if (event.key === "PageDown") transport.seekStep(-1);
    else if (event.key === "ArrowRight" || event.key === "ArrowUp") transport.stepOn();
    else if (event.key === "ArrowLeft" || event.key === "ArrowDown") transport.stepBack();
    else if (event.key === " ") transport.toggle();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** @param {Transport} transport @param {string} words the event at the playhead, for those who do not see it */
  update(transport, words) {
    const { log, position } = transport;
    set(this.input, { min: log.first, max: log.end, "aria-valuetext": words });
    if (Number(this.input.value) !== position) this.input.value = String(position);
    const width = this.element.clientWidth;
    const key = `${log.arena} ${log.epoch} ${log.first} ${log.end} ${position} ${width}`;
    if (key === this.key || !width) return;
    this.key = key;
    const span = Math.max(1, log.end - log.first);
    const x = (/** @type {number} */ p) => Math.round((PAD + ((p - log.first) / span) * (width - 2 * PAD)) * 10) / 10;
    const each = (width - 2 * PAD) / span >= LEAST_GAP;
    const every = Math.max(1, Math.ceil((log.marks.length * LEAST_GAP) / (width - 2 * PAD)));
    const ends = log.marks.filter((mark, i) => mark.end > mark.start && i % every === 0).map((mark) => mark.end);
    const tick = (/** @type {number} */ p, /** @type {number} */ half) => `M${x(p)} ${MIDDLE - half}v${2 * half}`;
    const at = log.end > log.first ? position : log.first;
    const small = ["", ""];
    if (each) for (let p = log.first + 1; p <= log.end; p += 1) small[p <= at ? 0 : 1] += tick(p, 3);
    const tall = ["", ""];
    for (const p of ends) tall[p <= at ? 0 : 1] += tick(p, 8);
    const [line, ahead, past, stepsAhead, stepsPast] = this.lines;
    set(line, { d: `M${PAD} ${MIDDLE}H${width - PAD}` });
    set(past, { d: `M${PAD} ${MIDDLE}H${x(at)}${small[0]}` });
    set(ahead, { d: small[1] || null });
    set(stepsPast, { d: tall[0] || null });
    set(stepsAhead, { d: tall[1] || null });
    set(this.head, { x: x(at) - 1.25 });
  }

  stop() {
    this.observer.disconnect();
  }
}
