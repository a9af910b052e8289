// @ts-check
/** One arena over the shared socket: opens it, opens it again where it left off, and carries its commands. */
import { Refusal, sharedSocket } from "./socket.js";

/** @typedef {import("./types.js").Snapshot} Snapshot */
/** @typedef {import("./types.js").Step} Step */
/** @typedef {{block_size: number, num_blocks: number, pace_ms: number}} Params */
/**
 * @typedef {object} Listener
 * @property {(status: import("./types.js").Status) => void} status
 * @property {(snapshot: Snapshot, restarted: boolean) => void} snapshot
 * @property {(step: Step) => "added" | "gap" | "old"} step
 * @property {() => void} attached the arena is ours and in step again
 * @property {() => void} detached the socket has gone, or the server has no room for one
 * @property {(why: string) => void} refused the server opens no arena of this shape, and is not asked again
 * @property {(position: number) => void} queued
 * @property {(reason: string) => void} closed
 * @property {(why: Error) => void} trouble a command failed that nobody waits for
 */

export class ArenaClient {
  /** @param {string} scene @param {Params} params @param {Listener} listener */
  constructor(scene, params, listener) {
    this.scene = scene;
    this.params = params;
    this.listener = listener;
    this.socket = sharedSocket();
    /** @type {string | null} */
    this.arena = null;
    this.secret = "";
    this.epoch = 0;
    this.seq = -1;
    this.openRef = -1;
    this.closed = false;
    /** The server has refused to open: another try must have a reason. */
    this.refused = false;
    /** The engine is not paused, as far as is known. */
    this.running = false;
    /** A new epoch is expected, because we asked for it. */
    this.resetting = false;
    this.ears = new AbortController();
    const { signal } = this.ears;
    this.socket.addEventListener("up", () => {
      this.refused = false;
      this.#open();
    }, { signal });
    this.socket.addEventListener("down", () => {
      this.running = false;
      this.listener.detached();
    }, { signal });
    this.socket.addEventListener("message", (event) => this.#receive(/** @type {CustomEvent} */ (event).detail), { signal });
    this.socket.addEventListener("leaving", () => this.#leave(), { signal });
    queueMicrotask(() => {
      if (signal.aborted) return;
      if (this.socket.status) this.listener.status(this.socket.status);
      if (this.socket.up) this.#open();
    });
  }

  #leave() {
    if (this.arena) this.socket.tell({ type: "close", arena: this.arena });
  }

  /** The figure has gone from the page: its memory is given back. */
  close() {
    this.#leave();
    this.closed = true;
    this.ears.abort();
  }

  get attached() {
    return this.socket.up && this.arena !== null && !this.closed && this.openRef < 0;
  }

  /** Opens the arena: the one we had, from where we had it, or else a new one as soon as the model is there. */
  #open() {
    if (this.closed || this.refused || this.openRef >= 0 || !this.socket.up) return;
    if (!this.secret && this.socket.status?.state !== "ready") return;
    const again = this.secret
      ? { type: "open", drive_secret: this.secret, epoch: this.epoch, since: this.seq }
      : { type: "open", scene: this.scene, params: this.params };
    this.socket.request(again, (ref) => (this.openRef = ref)).then(
      (answer) => {
        this.openRef = -1;
        if (answer.kind !== "opened") return;
        this.arena = answer.arena;
        this.secret = answer.drive_secret ?? this.secret;
        this.listener.attached();
      },
      (why) => {
        this.openRef = -1;
        if (this.secret && why instanceof Refusal) {
          this.#forget();
          this.#open();
        } else if (why instanceof Refusal) {
          this.refused = true;
          this.listener.refused(why.message);
        } else this.listener.trouble(why);
      },
    );
  }

  #forget() {
    this.arena = null;
    this.secret = "";
    this.seq = -1;
    this.running = false;
  }

  /** Asks for what is missing, or a snapshot: the log has a gap or makes no sense. @param {boolean} [afresh] */
  resync(afresh = false) {
    if (afresh) this.seq = -1;
    this.#open();
  }

  /** @param {import("./types.js").Incoming} message */
  #receive(message) {
    if (message.kind === "status") {
      this.listener.status(message);
      if (message.state !== "ready") this.refused = false;
      else if (this.arena === null) this.#open();
      return;
    }
    if (message.kind === "queued") {
      if (message.ref === this.openRef) this.listener.queued(message.position);
      return;
    }
    if (message.kind === "opened" && message.ref === this.openRef) this.arena = message.arena;
    if (!("arena" in message) || message.arena === null || message.arena !== this.arena) return;
    if (message.kind === "snapshot") this.#snapshot(message);
    else if (message.kind === "step") this.#step(message);
    else if (message.kind === "closed") {
      this.#forget();
      this.closed = true;
      this.listener.closed(message.reason);
    }
  }

  /** @param {Snapshot} message */
  #snapshot(message) {
    const restarted = this.seq >= 0 && message.epoch !== this.epoch && !this.resetting;
    this.resetting = false;
    this.epoch = message.epoch;
    this.seq = message.seq;
    this.running = !message.state.paused;
    this.params = { ...this.params, block_size: message.state.block_size, num_blocks: message.state.num_blocks };
    this.listener.snapshot(message, restarted);
  }

  /** @param {Step} message */
  #step(message) {
    this.running = !message.paused;
    const outcome = this.listener.step(message);
    if (outcome === "added") this.seq = message.seq;
    else if (outcome === "gap") this.resync();
  }

  /** After a `closed`: a new arena. */
  reopen() {
    this.closed = false;
    this.refused = false;
    this.#forget();
    this.#open();
  }

  /** @param {Record<string, unknown>} message */
  #ask(message) {
    return this.socket.request({ ...message, arena: this.arena });
  }

  /** A command whose answer nobody waits for. @param {Record<string, unknown>} message */
  #order(message) {
    this.#ask(message).catch((why) => this.listener.trouble(why));
  }

  /**
   * Submits a prompt; gives the number of the request. Rejects with the server's words.
   * @param {string} prompt @param {Record<string, unknown>} sampling @returns {Promise<number>}
   */
  async submit(prompt, sampling) {
    const answer = await this.#ask({ type: "submit", prompt, ...sampling });
    return answer.kind === "ok" ? answer.request ?? -1 : -1;
  }

  resume() {
    this.running = true;
    this.#order({ type: "resume" });
  }

  pause() {
    this.running = false;
    this.#order({ type: "pause" });
  }

  step() {
    this.#order({ type: "step" });
  }

  /** @param {number} ms */
  pace(ms) {
    this.params = { ...this.params, pace_ms: ms };
    if (this.attached) this.#order({ type: "set", params: { pace_ms: ms } });
  }

  /** The scene from its start, with another block size if given. @param {{block_size: number, num_blocks: number}} params */
  async reset(params) {
    this.resetting = true;
    try {
      await this.#ask({ type: "reset", scene: this.scene, params });
      this.params = { ...this.params, ...params };
    } catch (why) {
      this.resetting = false;
      throw why;
    }
  }
}
