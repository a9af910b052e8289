// @ts-check
/** A recorded trace: a header line, a snapshot, the steps as they came over the wire, and a closing snapshot. */
import { EventLog } from "./log.js";

/** @typedef {{header: import("./types.js").TraceHeader, log: EventLog}} Recording */

/**
 * Reads a trace. Throws an Error that names the line which is wrong.
 * @param {string} text JSON lines @returns {Recording}
 */
export function parseRecording(text) {
  const lines = text.split("\n").filter((line) => line.trim() !== "");
  const parsed = lines.map((line, i) => {
    try {
      return JSON.parse(line);
    } catch {
      throw new Error(`line ${i + 1} of the recording is no JSON`);
    }
  });
  const [header, snapshot, ...rest] = parsed;
  if (header?.format !== "paged-trace" || header.v !== 1)
    throw new Error(`line 1 must say format "paged-trace", v 1; it says ${header?.format}, v ${header?.v}`);
  if (snapshot?.kind !== "snapshot") throw new Error("line 2 of the recording must be a snapshot");
  const log = new EventLog(snapshot, Number.MAX_SAFE_INTEGER);
  const closing = rest.pop();
  rest.forEach((step, i) => {
    if (step.kind !== "step" || log.append(step) !== "added")
      throw new Error(`line ${i + 3} of the recording does not follow line ${i + 2}: it must be step ${log.seq + 1}`);
  });
  if (closing?.kind !== "snapshot" || closing.seq !== log.seq || closing.epoch !== log.epoch)
    throw new Error(`line ${parsed.length} of the recording must be the closing snapshot, of step ${log.seq}: it was cut short`);
  if (!same(log.head, closing.state)) throw new Error(`the steps of the recording do not lead to its closing snapshot in line ${parsed.length}`);
  return { header, log };
}

/** @param {unknown} a @param {unknown} b @returns {boolean} whether two values of JSON are the same, whatever the order of keys */
function same(a, b) {
  if (typeof a !== "object" || typeof b !== "object" || !a || !b) return a === b;
  const [mine, theirs] = [Object.entries(a), /** @type {Record<string, unknown>} */ (b)];
  return mine.length === Object.keys(theirs).length && mine.every(([key, value]) => Object.hasOwn(theirs, key) && same(value, theirs[key]));
}

/** Milliseconds after which a page that is never idle fetches the recording all the same, and a fetch is given up. */
const IDLE_MS = 5000;
const FETCH_MS = 20000;

/** A recording at its address: fetched ahead, for the time when nothing can be fetched, and parsed only when shown. */
export class StoredRecording {
  /** @param {string} url */
  constructor(url) {
    this.url = url;
    /** The text, once it is here; "" before. */
    this.text = "";
    this.planned = false;
    /** @type {Promise<string> | null} */
    this.coming = null;
  }

  /** Fetches it when the page has nothing else to do. */
  keep() {
    if (this.planned) return;
    this.planned = true;
    const go = () => void this.#fetch("low").catch(() => (this.planned = false));
    if (typeof requestIdleCallback === "function") requestIdleCallback(go, { timeout: IDLE_MS });
    else setTimeout(go, IDLE_MS / 2);
  }

  /** What it holds. Rejects with an Error that says why there is none. @returns {Promise<Recording>} */
  async open() {
    return parseRecording(await this.#fetch("auto"));
  }

  /** Fetches once, however many ask; after a failure, again. @param {RequestPriority} priority @returns {Promise<string>} */
  async #fetch(priority) {
    if (this.text) return this.text;
    this.coming ??= this.#get(priority).finally(() => (this.coming = null));
    return this.coming;
  }

  /** @param {RequestPriority} priority */
  async #get(priority) {
    /** @type {Response} */
    let response;
    try {
      response = await fetch(this.url, { priority, signal: AbortSignal.timeout(FETCH_MS) });
    } catch {
      throw new Error("the recording could not be fetched");
    }
    if (!response.ok) throw new Error(`no recording at ${this.url}: status ${response.status}`);
    this.text = await response.text();
    return this.text;
  }
}
