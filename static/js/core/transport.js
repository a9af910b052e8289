// @ts-check
/** The playhead over a log's events. At the end of a live log it drives the engine itself: play resumes it, pause
 * pauses it, a step runs one. Anywhere else it moves over what has happened; nothing is ever computed twice. */

/** @typedef {import("./log.js").EventLog} EventLog */
/**
 * The engine behind a live log. `ready`: it can be reached. `running`: it is not paused. `idle`: no request waits or runs.
 * @typedef {{ready: () => boolean, running: () => boolean, idle: () => boolean, resume: () => void, pause: () => void, step: () => void,
 *   pace: (ms: number) => void}} Drive
 */

/** Milliseconds of one step at speed 1. */
export const STEP_MS = 400;
export const SPEEDS = [0.5, 1, 2, 4];

export class Transport {
  /** @param {EventLog} log @param {Drive | null} drive null: a recording @param {() => void} changed */
  constructor(log, drive, changed) {
    this.log = log;
    this.drive = drive;
    this.changed = changed;
    this.position = log.end;
    this.playing = false;
    this.speed = 1;
    /** A step was asked of the engine: show one event of what comes. */
    this.awaiting = false;
    /** @type {((event: import("./types.js").AnyEvent) => boolean) | null} */
    this.wanted = null;
    /** A step was asked of the engine while looking for that event. */
    this.asked = false;
    /** Playback has ended because nothing was left to happen: it goes on by itself when a request comes. */
    this.rested = false;
    this.credit = 0;
  }

  /** Where playing begins again once everything is over. @returns {number} */
  home = () => this.log.first;

  get atEnd() {
    return this.position >= this.log.end;
  }

  /** Playing, or running the engine step by step up to the event that is looked for. */
  get going() {
    return this.playing || (this.wanted !== null && !this.#spent());
  }

  /** Playing along with the engine, with no more to show than its last two steps. */
  get following() {
    if (!this.playing || !this.drive?.running()) return false;
    const mark = this.log.markAt(this.position + 1);
    return !mark || (this.log.marks.at(-1)?.seq ?? 0) - mark.seq < 2;
  }

  /** Another log in the same place (a reset, a new epoch). @param {EventLog} log @param {number} [position] */
  replaceLog(log, position = log.end) {
    this.log = log;
    this.position = log.clamp(position);
    this.awaiting = false;
    this.wanted = null;
    this.rested = false;
    this.credit = 0;
    this.changed();
  }

  /** An envelope has come: `before` was the log's end. @param {number} before */
  appended(before) {
    this.position = this.log.clamp(this.position);
    if (this.wanted) this.#seekWanted(before);
    else if (this.awaiting && this.log.end > before) {
      this.awaiting = false;
      this.position = Math.min(before + 1, this.log.end);
    } else if (!this.playing && !this.awaiting && this.position === before) {
      if (this.rested && this.drive?.running()) this.playing = true;
      else this.position = this.log.end;
    }
    this.changed();
  }

  /** @returns {boolean} nothing more can happen at the end of this log by itself */
  #spent() {
    return !this.drive || this.drive.idle();
  }

  /** @returns {boolean} the engine goes on by itself, now */
  #busy() {
    return Boolean(this.drive?.running()) && !this.#spent();
  }

  play() {
    this.wanted = null;
    if (this.atEnd && this.#spent()) this.position = this.log.clamp(this.home());
    this.rested = false;
    this.playing = true;
    this.credit = 0;
    if (this.atEnd) this.#runOn();
    this.changed();
  }

  /** At the end: let the engine go on, or stop where there is none. */
  #runOn() {
    if (this.#spent()) {
      this.playing = false;
      this.rested = this.drive !== null;
    } else if (this.drive && !this.drive.running()) this.drive.resume();
  }

  pause() {
    this.playing = false;
    this.rested = false;
    this.wanted = null;
    if (this.drive?.running()) this.drive.pause();
    this.changed();
  }

  toggle() {
    if (this.going) this.pause();
    else this.play();
  }

  /** Shows the log as it stands and follows it. */
  goLive() {
    this.position = this.log.end;
    this.wanted = null;
    this.playing = this.#busy();
    this.rested = !this.playing && Boolean(this.drive?.running());
    this.changed();
  }

  /** @param {number} position */
  seek(position) {
    this.position = this.log.clamp(position);
    this.awaiting = false;
    this.rested = false;
    this.wanted = null;
    if (this.atEnd && this.drive?.running()) this.goLive();
    else {
      this.playing = false;
      this.changed();
    }
  }

  stepOn() {
    if (!this.atEnd) return this.seek(this.position + 1);
    this.wanted = null;
    if (this.drive?.running()) return this.pause();
    if (this.#spent() || this.awaiting) return undefined;
    this.awaiting = true;
    this.drive?.step();
    return this.changed();
  }

  stepBack() {
    if (this.playing) this.pause();
    this.seek(this.position - 1);
  }

  /** A whole step (envelope) on or back. @param {1 | -1} direction */
  seekStep(direction) {
    if (direction > 0 && this.atEnd) return this.stepOn();
    return this.seek(direction > 0 ? this.log.nextBoundary(this.position) : this.log.previousBoundary(this.position));
  }

  /**
   * Stands the playhead just after the first event from `from` on that `wanted` accepts; if there is none yet and
   * the engine can go on, runs it step by step until there is.
   * @param {(event: import("./types.js").AnyEvent) => boolean} wanted @param {number} [from]
   * @returns {boolean} found, or being looked for
   */
  seekEvent(wanted, from = this.log.first) {
    const found = this.log.find(from, wanted);
    if (found >= 0) {
      if (this.drive?.running()) this.drive.pause();
      this.position = found;
      this.playing = false;
      this.wanted = null;
      this.changed();
      return true;
    }
    if (this.#spent()) return false;
    this.playing = false;
    this.wanted = wanted;
    this.position = this.log.end;
    this.asked = !this.drive?.running();
    if (this.asked) this.drive?.step();
    else this.drive?.pause();
    this.changed();
    return true;
  }

  /** @param {number} before */
  #seekWanted(before) {
    const wanted = this.wanted;
    if (!wanted) return;
    const found = this.log.find(before, wanted);
    this.position = found >= 0 ? found : this.log.end;
    if (found >= 0 || this.#spent()) this.wanted = null;
    else if (this.drive && !this.drive.running() && (!this.asked || this.log.end > before)) {
      this.asked = true;
      this.drive.step();
    }
  }

  /** @param {number} speed */
  setSpeed(speed) {
    this.speed = speed;
    this.drive?.pace(STEP_MS / speed);
    this.changed();
  }

  /** After a time unseen: no queue of what was missed, the state as it is. */
  catchUp() {
    if (this.playing && this.#busy()) this.position = this.log.end;
    this.credit = 0;
    this.changed();
  }

  /**
   * Moves on by `ms` of time: an envelope's events are spread over one step, faster with more envelopes waiting.
   * @param {number} ms @returns {boolean} whether time must go on
   */
  tick(ms) {
    if (!this.playing) return false;
    if (this.atEnd) {
      this.credit = 0;
      this.#runOn();
      if (!this.playing) this.changed();
      return false;
    }
    this.credit += ms;
    while (!this.atEnd) {
      const cost = this.#cost();
      if (this.credit < cost) break;
      this.credit -= cost;
      this.position += 1;
      this.changed();
    }
    return true;
  }

  /** Milliseconds of the next event. */
  #cost() {
    const mark = this.log.markAt(this.position + 1);
    if (!mark) return 0;
    const behind = this.#busy() ? (this.log.marks.at(-1)?.seq ?? mark.seq) - mark.seq : 0;
    return STEP_MS / this.speed / (mark.end - mark.start) / (1 + behind);
  }
}
