// @ts-check
/** Live if a server answers, a labelled recording if none does, and live again when one does again. */
import { ArenaClient } from "../../core/arena.js";
import { loadRecording } from "../../core/recording.js";
import { EventLog } from "../../core/log.js";
import { ImpossibleEvent } from "../../core/reduce.js";
import { Session, busy } from "../../core/session.js";
import { STEP_MS } from "../../core/transport.js";
import { modelLine } from "./head.js";

/** @typedef {import("./head.js").Source} Label */
/** @typedef {import("../../core/types.js").Status} Status */

/** Milliseconds without a server after which the recording is shown. */
const PATIENCE_MS = 4000;

export class FigureSource {
  /** @param {string} scene @param {string} recording its address @param {{block_size: number, num_blocks: number}} shape
   * @param {() => void} changed something is to be drawn @param {() => void} switched another log is shown */
  constructor(scene, recording, shape, changed, switched) {
    this.address = recording;
    this.changed = changed;
    this.switched = switched;
    /** @type {Session | null} */
    this.live = null;
    /** @type {Session | null} */
    this.recorded = null;
    /** @type {import("../../core/types.js").TraceHeader | null} */
    this.header = null;
    /** @type {Session | null} the one on show */
    this.session = null;
    /** @type {Status | null} */
    this.status = null;
    this.queue = 0;
    this.closed = "";
    this.note = "";
    this.restarted = false;
    this.lost = false;
    this.missing = "";
    this.loading = false;
    this.stopped = false;
    this.renewed = () => {};
    this.client = new ArenaClient(scene, { ...shape, pace_ms: STEP_MS }, {
      status: (status) => this.#status(status),
      snapshot: (snapshot, restarted) => this.#snapshot(snapshot, restarted),
      step: (step) => this.#step(step),
      attached: () => this.#attached(),
      detached: () => this.#wait(),
      queued: (position) => {
        this.queue = position;
        void this.#fallBack();
      },
      closed: (reason) => {
        this.closed = reason;
        this.changed();
      },
      trouble: (why) => this.#trouble(why),
    });
    this.#wait();
  }

  /** Shows the recording unless a server answers in time. */
  #wait() {
    this.changed();
    window.setTimeout(() => {
      if (this.client.socket.up && this.status) return;
      this.lost = true;
      void this.#fallBack();
    }, PATIENCE_MS);
  }

  /** @param {Status} status */
  #status(status) {
    this.status = status;
    this.lost = false;
    if (status.state === "failed") void this.#fallBack();
    this.changed();
  }

  /** @param {import("../../core/types.js").Snapshot} snapshot @param {boolean} restarted */
  #snapshot(snapshot, restarted) {
    this.restarted = restarted || (this.restarted && this.live?.log.epoch === snapshot.epoch);
    this.closed = "";
    if (this.live) {
      const fresh = snapshot.epoch !== this.live.log.epoch || snapshot.arena !== this.live.log.arena;
      this.live.restart(snapshot);
      if (fresh) this.switched();
    }
    else this.live = new Session("live", new EventLog(snapshot), this.#drive(), this.changed);
    this.#show(this.live);
    this.renewed();
  }

  /** Whether the engine can be driven now. */
  get ready() {
    return this.client.attached && this.status?.state === "ready";
  }

  /** What a client needs to put a request into this memory, while there is one. */
  get memory() {
    const model = this.status?.model?.name;
    return this.client.attached && this.client.secret && model ? { secret: this.client.secret, model } : null;
  }

  /** @returns {import("../../core/transport.js").Drive} */
  #drive() {
    const client = this.client;
    return {
      ready: () => this.ready,
      running: () => this.ready && client.running,
      idle: () => !this.ready || !this.live || !busy(this.live.log.head),
      resume: () => client.resume(),
      pause: () => client.pause(),
      step: () => client.step(),
      pace: (ms) => client.pace(ms),
    };
  }

  /** @param {import("../../core/types.js").Step} step */
  #step(step) {
    if (!this.live) return /** @type {const} */ ("gap");
    try {
      return this.live.append(step);
    } catch (why) {
      if (!(why instanceof ImpossibleEvent)) throw why;
      this.note = why.message;
      this.client.resync(true);
      this.changed();
      return /** @type {const} */ ("old");
    }
  }

  #attached() {
    this.queue = 0;
    this.lost = false;
    this.closed = "";
    if (this.live) this.#show(this.live);
    this.changed();
  }

  /** @param {Session} session */
  #show(session) {
    if (this.session === session) {
      this.changed();
      return;
    }
    this.session?.transport.pause();
    this.session = session;
    this.switched();
    this.changed();
  }

  async #fallBack() {
    this.changed();
    if (this.loading || this.stopped) return;
    this.loading = true;
    try {
      if (!this.recorded) {
        const { header, log } = await loadRecording(this.address);
        this.header = header;
        this.recorded = new Session("recorded", log, null, this.changed);
        this.recorded.transport.position = this.recorded.prefilled;
      }
      if (this.#needed()) {
        this.#show(this.recorded);
        if (!matchMedia("(prefers-reduced-motion: reduce)").matches) this.recorded.transport.play();
      }
    } catch (why) {
      this.missing = why instanceof Error ? why.message : String(why);
    } finally {
      this.loading = false;
      this.changed();
    }
  }

  #needed() {
    return !this.stopped && !this.client.attached && (this.lost || this.queue > 0 || this.status?.state === "failed");
  }

  /** @param {Error} why */
  #trouble(why) {
    if (!this.client.socket.up) return;
    this.note = why.message;
    this.live?.transport.goLive();
    this.changed();
  }

  /** Another block size, or the same: the scene from its start. Settles when its first state is here. @param {{block_size: number, num_blocks: number}} shape */
  async reset(shape) {
    this.note = "";
    const opened = new Promise((resolve) => (this.renewed = () => resolve(undefined)));
    await this.client.reset(shape);
    await opened;
  }

  reopen() {
    this.closed = "";
    this.client.reopen();
    this.changed();
  }

  stop() {
    this.stopped = true;
    this.client.close();
  }

  /** Where what is shown comes from, in words. @returns {Label} */
  label() {
    /** @type {Label} */
    const label = { kind: "waiting", title: "", words: "", progress: null, action: "" };
    const { status, header } = this;
    const recorded = this.session?.kind === "recorded" && header ? modelLine(header.model) : "";
    if (recorded && header) {
      label.kind = "recorded";
      label.title = `recorded on ${header.recorded}:`;
    }
    const behind = (/** @type {string} */ words) => (recorded ? `${recorded}; ${words}` : words);
    if (this.lost) label.words = behind(this.missing ? `no server answers (${this.missing})` : "no server answers");
    else if (this.queue) label.words = behind(`all memories are taken, you are number ${this.queue} in the queue`);
    else if (!this.client.socket.up) label.words = this.session ? "the connection is gone, trying again" : "asking the server";
    else if (status?.state === "failed") label.words = behind(`the engine has failed: ${status.stage ?? ""}`);
    else if (status && status.state !== "ready") {
      label.words = behind(`${status.state === "restarting" ? "the engine starts again" : "the model is loading"}${status.stage ? `: ${status.stage}` : ""}`);
      label.progress = status.progress ?? 0;
    } else if (this.closed) {
      label.words = `this memory is closed: ${this.closed}`;
      label.action = "open another";
    } else if (this.client.attached && status?.model) {
      label.kind = "live";
      label.title = "live:";
      label.words = modelLine(status.model) + (this.restarted ? "; the engine was started again" : "") + (this.note ? `; ${this.note}` : "");
    } else label.words = this.note || "opening a memory";
    return label;
  }
}
