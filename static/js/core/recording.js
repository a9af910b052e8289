// @ts-check
/** A recorded trace: a header line, a snapshot, then steps, exactly as they came over the wire. */
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
  const [header, snapshot, ...steps] = parsed;
  if (header?.format !== "paged-trace" || header.v !== 1)
    throw new Error(`line 1 must say format "paged-trace", v 1; it says ${header?.format}, v ${header?.v}`);
  if (snapshot?.kind !== "snapshot") throw new Error("line 2 of the recording must be a snapshot");
  const log = new EventLog(snapshot, Number.MAX_SAFE_INTEGER);
  steps.forEach((step, i) => {
    if (step.kind !== "step" || log.append(step) !== "added")
      throw new Error(`line ${i + 3} of the recording does not follow line ${i + 2}: it must be step ${log.seq + 1}`);
  });
  return { header, log };
}

/** @param {string} url @returns {Promise<Recording>} */
export async function loadRecording(url) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`no recording at ${url}: status ${response.status}`);
  return parseRecording(await response.text());
}
