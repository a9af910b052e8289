// @ts-check
/** The log of an arena: a snapshot and the envelopes since, as one line of events that a playhead can stand anywhere
 * on. Position p means "p events have happened", counted from the snapshot; old events fall off at the front. */
import { applyEnvelope, applyEvent, endEnvelope } from "./reduce.js";

/** @typedef {import("./types.js").ArenaState} ArenaState */
/** @typedef {import("./types.js").AnyEvent} AnyEvent */
/** @typedef {{seq: number, t: number, paused: boolean,
 *   partition: import("./types.js").Partition, start: number, end: number}} Mark where an envelope lies */
/** @typedef {{position: number, marks: number, state: ArenaState}} Frame `marks`: envelopes ended before it */

const KEYFRAME_EVERY = 64;

export class EventLog {
  /** @param {import("./types.js").Snapshot} snapshot @param {number} [limit] events kept, at least */
  constructor(snapshot, limit = 6000) {
    this.limit = limit;
    this.arena = snapshot.arena;
    this.epoch = snapshot.epoch;
    /** Position of the oldest state that can be shown. */
    this.first = 0;
    this.seq = snapshot.seq;
    /** @type {AnyEvent[]} */
    this.events = [];
    /** @type {Mark[]} */
    this.marks = [];
    /** The state after everything. */
    this.head = snapshot.state;
    /** @type {Frame[]} */
    this.frames = [{ position: 0, marks: 0, state: snapshot.state }];
    this.droppedMarks = 0;
    /** @type {Frame} */
    this.cursor = this.frames[0];
  }

  /** Position after the last event. */
  get end() {
    return this.first + this.events.length;
  }

  /**
   * Adds an envelope. "gap": something between is missing, nothing was added. "old": it is here already.
   * Throws ImpossibleEvent, adding nothing, if an event cannot have happened.
   * @param {import("./types.js").Step} step @returns {"added" | "gap" | "old"}
   */
  append(step) {
    if (step.epoch !== this.epoch || step.seq > this.seq + 1) return "gap";
    if (step.seq <= this.seq) return "old";
    this.head = applyEnvelope(this.head, step);
    const start = this.end;
    this.events.push(...step.events);
    this.marks.push({ seq: step.seq, t: step.t, paused: step.paused, partition: step.partition, start, end: this.end });
    this.seq = step.seq;
    if (this.end - this.frames[this.frames.length - 1].position >= KEYFRAME_EVERY) this.frames.push(this.#headFrame());
    this.#trim();
    return "added";
  }

  /** @returns {Frame} */
  #headFrame() {
    return { position: this.end, marks: this.droppedMarks + this.marks.length, state: this.head };
  }

  /** Lets go of the oldest envelopes, up to a keyframe, once a quarter more than the limit is here. */
  #trim() {
    if (this.events.length <= this.limit * 1.25) return;
    const keep = this.end - this.limit;
    const at = this.frames.findLastIndex((f) => f.position <= keep);
    if (at <= 0) return;
    const base = this.frames[at];
    this.frames = this.frames.slice(at);
    this.events = this.events.slice(base.position - this.first);
    this.marks = this.marks.slice(base.marks - this.droppedMarks);
    this.droppedMarks = base.marks;
    this.first = base.position;
    if (this.cursor.position < this.first) this.cursor = base;
  }

  /** @param {number} position nearest that can be shown @returns {number} */
  clamp(position) {
    return Math.max(this.first, Math.min(this.end, Math.round(position)));
  }

  /**
   * The state after `position` events. Forward steps continue from the last answer; others start at a keyframe.
   * @param {number} position @returns {ArenaState}
   */
  stateAt(position) {
    const p = this.clamp(position);
    if (p === this.end) return this.head;
    let frame = this.frames[0];
    for (const candidate of [...this.frames, this.cursor])
      if (candidate.position <= p && candidate.position > frame.position) frame = candidate;
    let { state, marks } = frame;
    for (let at = frame.position; ; at += 1) {
      for (let mark = this.marks[marks - this.droppedMarks]; mark && mark.end === at; mark = this.marks[marks - this.droppedMarks]) {
        state = endEnvelope(state, mark);
        marks += 1;
      }
      if (at === p) break;
      state = applyEvent(state, this.events[at - this.first]);
    }
    this.cursor = { position: p, marks, state };
    return state;
  }

  /** The event that led to `position`, or the one that leads on from it (`offset` 1). @param {number} position
   * @param {number} [offset] @returns {AnyEvent | undefined} */
  eventAt(position, offset = 0) {
    return this.events[position - 1 + offset - this.first];
  }

  /** The envelope whose events include the one that led to `position`. @param {number} position @returns {Mark | undefined} */
  markAt(position) {
    return this.marks[this.#search(position)];
  }

  /** Index of the first envelope that ends at or after `position` and is not empty. @param {number} position */
  #search(position) {
    let low = 0;
    let high = this.marks.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.marks[middle].end < position) low = middle + 1;
      else high = middle;
    }
    while (low < this.marks.length && this.marks[low].end === this.marks[low].start) low += 1;
    return low;
  }

  /** End of the envelope that `position` lies in or before. @param {number} position @returns {number} */
  nextBoundary(position) {
    return this.markAt(position + 1)?.end ?? this.end;
  }

  /** Start of the envelope that led to `position`. @param {number} position @returns {number} */
  previousBoundary(position) {
    if (position <= this.first) return this.first;
    return Math.max(this.first, this.markAt(position)?.start ?? this.first);
  }

  /**
   * Position just after the first event from `from` on that `wanted` accepts, or -1.
   * @param {number} from @param {(event: AnyEvent, position: number) => boolean} wanted @returns {number}
   */
  find(from, wanted) {
    for (let p = this.clamp(from) + 1; p <= this.end; p += 1) {
      const event = this.events[p - 1 - this.first];
      if (wanted(event, p)) return p;
    }
    return -1;
  }
}
