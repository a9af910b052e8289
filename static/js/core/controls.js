// @ts-check
/** The transport's controls: back, play, on, the scrubber, the count, the speed, and whether this is live. */
import { el, say, set, svg } from "./dom.js";
import { Scrubber } from "./scrubber.js";
import { SPEEDS } from "./transport.js";
import { sentence } from "./words.js";

/** @typedef {import("./session.js").Session} Session */
/** @typedef {import("./types.js").ArenaState} ArenaState */

const SHAPES = {
  back: "M11.5 3v10L4.5 8z",
  on: "M4.5 3v10l7-5z",
  play: "M3.5 1.5v13L14 8z",
  pause: "M3.5 2h3.2v12H3.5zM9.3 2h3.2v12H9.3z",
};

/** @param {string} shape */
function icon(shape) {
  return svg("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" }, svg("path", { d: shape }));
}

export class Controls {
  /** @param {() => Session | null} session */
  constructor(session) {
    const transport = () => session()?.transport ?? null;
    this.session = session;
    this.scrubber = new Scrubber(transport);
    const button = (/** @type {string} */ label, /** @type {string} */ shape, /** @type {() => void} */ act) => {
      const node = el("button", { type: "button", class: "figure-button", "aria-label": label }, icon(shape));
      node.addEventListener("click", act);
      return node;
    };
    this.back = button("Back one event", SHAPES.back, () => transport()?.stepBack());
    this.play = button("Play", SHAPES.play, () => transport()?.toggle());
    this.play.classList.add("play");
    this.playWord = el("span", { "aria-hidden": "true" }, "Play");
    this.play.append(this.playWord);
    this.on = button("On one event", SHAPES.on, () => transport()?.stepOn());
    this.total = el("span");
    this.count = el("span", { class: "count" }, el("span", { class: "unit" }, "event "), this.total);
    this.speed = el("select", { class: "figure-select speed", "aria-label": "Speed" },
      ...SPEEDS.map((speed) => el("option", { value: speed, selected: speed === 1 }, `${speed === 0.5 ? "½" : speed}×`)));
    this.speed.addEventListener("change", () => transport()?.setSpeed(Number(this.speed.value)));
    this.live = el("button", { type: "button", class: "figure-button live", "data-state": "none", tabindex: -1 });
    this.live.addEventListener("click", () => transport()?.goLive());
    this.element = el("div", { class: "controls", role: "group", "aria-label": "Playback" },
      this.back, this.play, this.on, this.speed, this.scrubber.element, this.count, this.live);
    this.element.addEventListener("keydown", (event) => this.#key(event));
    this.shape = "play";
    this.idle();
  }

  /** Before there is anything to play. */
  idle() {
    for (const node of [this.back, this.play, this.on]) set(node, { "aria-disabled": "true" });
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const transport = this.session()?.transport;
    const target = /** @type {Element} */ (event.target);
    if (!transport || target.tagName === "SELECT") return;
    if (event.key === "ArrowLeft") transport.stepBack();
    else if (event.key === "ArrowRight") transport.stepOn();
    else if (event.key === " " && target.tagName !== "BUTTON") transport.toggle();
    else return;
    event.preventDefault();
  }

  /** @param {ArenaState} state the one at the playhead @param {string} otherwise what to say before the first event */
  update(state, otherwise) {
    const session = this.session();
    if (!session) return;
    const { transport, log, names } = session;
    const event = log.eventAt(transport.position);
    const shape = transport.going ? "pause" : "play";
    if (shape !== this.shape) {
      this.shape = shape;
      this.play.replaceChildren(icon(SHAPES[shape]), this.playWord);
    }
    const word = transport.going ? "Pause" : session.over ? "Again" : "Play";
    say(this.playWord, word);
    set(this.play, { "aria-label": word === "Again" ? "Play again" : word, "aria-disabled": null });
    const total = log.end - log.first;
    const at = transport.position - log.first;
    set(this.back, { "aria-disabled": at === 0 ? "true" : null });
    set(this.on, { "aria-disabled": session.over ? "true" : null });
    say(this.total, `${at} of ${total}`);
    const words = event ? `event ${at} of ${total}. ${sentence(event, state, names)}` : otherwise;
    this.scrubber.update(transport, words);
    if (Number(this.speed.value) !== transport.speed) this.speed.value = String(transport.speed);
    this.#live(session);
  }

  /** @param {Session} session */
  #live({ transport, log }) {
    const drive = transport.drive;
    if (!drive?.ready()) {
      say(this.live, drive ? "not live now" : "recorded");
      set(this.live, { "data-state": "none", "aria-disabled": "true", tabindex: -1 });
      return;
    }
    const behind = transport.following ? 0 : log.end - transport.position;
    const running = transport.going || (drive.running() && !drive.idle());
    say(this.live, behind ? `go live, +${behind}` : running ? "live" : drive.idle() ? "live, at rest" : "live, paused");
    set(this.live, { "data-state": behind ? "behind" : "live", "aria-disabled": behind ? null : "true", tabindex: behind ? null : -1 });
  }

  stop() {
    this.scrubber.stop();
  }
}
