// @ts-check
/** Live if a server answers, a labelled recording if none does, and live again when one does again. */
import { ArenaClient } from "../../core/arena.js";
import { StoredRecording } from "../../core/recording.js";
import { EventLog } from "../../core/log.js";
import { ImpossibleEvent } from "../../core/reduce.js";
import { Session, busy } from "../../core/session.js";
import { STEP_MS } from "../../core/transport.js";
import { sourceLabel } from "./label.js";

/** @typedef {import("../../core/types.js").Status} Status */

/** Milliseconds without a server after which the recording is shown. */
const PATIENCE_MS = 4000;

export class FigureSource {
  /** @param {string} scene @param {string} recording its address @param {{block_size: number, num_blocks: number}} shape
   * @param {() => void} changed something is to be drawn @param {() => void} switched another log is shown */
  constructor(scene, recording, shape, changed, switched) {
    this.recording = new StoredRecording(recording);
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
    this.refusal = "";
    this.note = "";
    this.restarted = false;
    this.lost = false;
    this.missing = "";
    this.loading = false;
    this.stopped = false;
    /** @type {{block_size: number, num_blocks: number} | null} asked for and not here yet */
    this.asked = null;
    /** @type {(() => void)[]} those who wait for another first state */
    this.renewals = [];
    this.client = new ArenaClient(scene, { ...shape, pace_ms: STEP_MS }, {
      status: (status) => this.#status(status),
      snapshot: (snapshot, restarted) => this.#snapshot(snapshot, restarted),
      step: (step) => this.#step(step),
      attached: () => this.#attached(),
      detached: () => this.#detached(),
      queued: (position) => {
        this.queue = position;
        void this.#fallBack();
      },
      closed: (reason) => {
        this.closed = reason;
        this.#renewed();
        this.changed();
      },
      refused: (why) => {
        this.refusal = why;
        void this.#fallBack();
      },
      trouble: (why) => this.#trouble(why),
    });
    this.#wait();
  }

  #detached() {
    this.queue = 0;
    this.refusal = "";
    this.#renewed();
    if (this.client.socket.crowded) void this.#fallBack();
    else this.#wait();
  }

  /** Shows the recording unless a server answers in time. */
  #wait() {
    this.changed();
    window.setTimeout(() => {
      if (this.stopped || (this.client.socket.up && this.status)) return;
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
    this.#renewed();
    this.#keep();
  }

  #renewed() {
    for (const settle of this.renewals.splice(0)) settle();
  }

  /** Once the scene is set, there is time to fetch what is shown when the server has gone. */
  #keep() {
    if (!this.recording.planned && this.live?.set) this.recording.keep();
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
      const outcome = this.live.append(step);
      this.#keep();
      return outcome;
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
    this.refusal = "";
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
        const { header, log } = await this.recording.open();
        this.header = header;
        this.missing = "";
        this.recorded = new Session("recorded", log, null, this.changed);
        this.recorded.transport.position = this.recorded.prefilled;
      }
      if (this.#needed() && this.session !== this.recorded) {
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
    const without = this.lost || this.queue > 0 || this.refusal !== "" || this.client.socket.crowded || this.status?.state === "failed";
    return !this.stopped && !this.client.attached && without;
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
    this.asked = shape;
    this.changed();
    try {
      await this.client.reset(shape);
      // The answer comes ahead of the first state, so nobody is too late to wait for that.
      await new Promise((resolve) => this.renewals.push(() => resolve(undefined)));
    } finally {
      if (this.asked === shape) this.asked = null;
    }
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

  /** Slots to a block: as chosen, or else as shown. */
  get blockSize() {
    return this.asked?.block_size ?? this.session?.log.head.block_size ?? this.client.params.block_size;
  }

  /** Where what is shown comes from, in words. @returns {import("./head.js").Source} */
  label() {
    const { lost, queue, closed, refusal, note, missing, restarted, status } = this;
    const { up, crowded } = this.client.socket;
    const recorded = this.session?.kind === "recorded" ? this.header : null;
    return sourceLabel({
      up, crowded, attached: this.client.attached, lost, queue, closed, refusal, note, missing, restarted, shown: this.session !== null,
      status, recorded,
    });
  }
}
