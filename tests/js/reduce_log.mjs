/**
 * Reads a recorded trace and prints the state that the page's reducer arrives at, as JSON.
 *
 *     node reduce_log.mjs FILE           the final state
 *     node reduce_log.mjs FILE --each    one line after the snapshot and after each envelope: {"seq": ..., "state": ...}
 *
 * An impossible event ends it with exit status 1 and the reason on standard error.
 */
import { readFileSync } from "node:fs";
import { applyEnvelope } from "../../static/js/core/reduce.js";
import { parseRecording } from "../../static/js/core/recording.js";

const [file, option] = process.argv.slice(2);
try {
  const text = readFileSync(file, "utf8");
  if (option !== "--each") console.log(JSON.stringify(parseRecording(text).log.head));
  else {
    const [, snapshot, ...steps] = text.split("\n").filter((line) => line.trim()).map((line) => JSON.parse(line));
    let { state } = snapshot;
    console.log(JSON.stringify({ seq: snapshot.seq, state }));
    for (const step of steps) {
      state = applyEnvelope(state, step);
      console.log(JSON.stringify({ seq: step.seq, state }));
    }
  }
} catch (why) {
  console.error(why instanceof Error ? why.message : why);
  process.exit(1);
}
