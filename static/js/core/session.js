// @ts-check
/** A log on show with its playhead and its names: either a live arena's, or a recording's. */
import { EventLog } from "./log.js";
import { Names } from "./names.js";
import { ended } from "./reduce/state.js";
import { Transport } from "./transport.js";

/** @typedef {import("./types.js").ArenaState} ArenaState */
/** @typedef {import("./transport.js").Drive} Drive */

/** @param {ArenaState} state whether any request waits, runs or is swapped out */
export function busy(state) {
  return state.requests.some((r) => !ended(r));
}

export class Session {
  /** @param {"live" | "recorded"} kind @param {EventLog} log @param {Drive | null} drive @param {() => void} changed */
  constructor(kind, log, drive, changed) {
    this.kind = kind;
    this.log = log;
    this.names = new Names();
    this.#meet(log);
    this.transport = new Transport(log, drive, changed);
    this.transport.home = () => this.prefilled;
  }

  /** @param {EventLog} log */
  #meet(log) {
    this.names.meetAll(log.head);
    for (const event of log.events) if (event.type === "request_arrived") this.names.meet(event);
  }

  /** Starts over from a snapshot. @param {import("./types.js").Snapshot} snapshot */
  restart(snapshot) {
    const same = snapshot.arena === this.log.arena && snapshot.epoch === this.log.epoch;
    if (!same) {
      this.names = new Names();
      this.transport.playing = false;
    }
    this.log = new EventLog(snapshot);
    this.#meet(this.log);
    this.transport.replaceLog(this.log);
  }

  /** @param {import("./types.js").Step} step @returns {"added" | "gap" | "old"} */
  append(step) {
    const before = this.log.end;
    const outcome = this.log.append(step);
    if (outcome === "added") {
      for (const event of step.events) if (event.type === "request_arrived") this.names.meet(event);
      this.transport.appended(before);
    }
    return outcome;
  }

  get state() {
    return this.log.stateAt(this.transport.position);
  }

  /** The scene's first request, which the chapter calls A; or null where it is not known any more. */
  get opening() {
    return this.log.head.requests.find((r) => r.source === "scene") ?? null;
  }

  /** Whether the scene has been set: what comes before has gone, and its first request has been read. */
  get set() {
    const { head } = this.log;
    const opening = this.opening;
    return opening
      ? opening.status !== "waiting" && head.sequences.some((s) => opening.sequences.includes(s.sequence) && s.outputs.length > 0)
      : !busy(head) && head.step > 0;
  }

  /** The scene is being set: what is shown is not yet what the reader is to look at. */
  get setting() {
    return this.kind === "live" && !this.set && this.transport.atEnd;
  }

  /** The playhead stands where the figure opens: the first request has been read, and nothing moves. */
  get opened() {
    return this.set && this.opening !== null && !this.transport.going && this.transport.position === this.prefilled;
  }

  /** Everything has ended, and the playhead stands there. */
  get over() {
    return this.set && this.transport.atEnd && !this.transport.playing && !busy(this.log.head);
  }

  /** Position at which the opening request has been read and its first token picked. @returns {number} */
  get prefilled() {
    const opening = this.opening;
    if (!opening) return this.log.first;
    const found = this.log.find(this.log.first, (e) => e.type === "token_generated" && opening.sequences.includes(e.sequence));
    return found < 0 || this.#knewOutput(opening.sequences) ? this.log.first : this.log.markAt(found)?.end ?? this.log.first;
  }

  /** Whether the log begins only after the first token. @param {number[]} sequences */
  #knewOutput(sequences) {
    const base = this.log.stateAt(this.log.first);
    return base.sequences.some((s) => sequences.includes(s.sequence) && s.outputs.length > 0);
  }
}
