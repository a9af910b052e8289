/**
 * Reads logs, one JSON object {"name", "snapshot", "steps"} a line, and prints for each {"name", "refused", "said", "states"}:
 * the number of the envelope that the page's reducer does not believe (null if it believes all), its words, and the states
 * after the snapshot and after every envelope before that.
 *
 *     node reduce_logs.mjs < FILE
 */
import { readFileSync } from "node:fs";
import { ImpossibleEvent, applyEnvelope, checkOrder } from "../../static/js/core/reduce.js";

for (const line of readFileSync(0, "utf8").split("\n").filter(Boolean)) {
  const { name, snapshot, steps } = JSON.parse(line);
  const states = [snapshot.state];
  let { seq } = snapshot;
  let refused = null;
  let said = "";
  try {
    checkOrder(snapshot.state);
    for (const step of steps) {
      seq = step.seq;
      states.push(applyEnvelope(states.at(-1), step));
    }
  } catch (why) {
    if (!(why instanceof ImpossibleEvent)) throw why;
    [refused, said] = [seq, why.message];
  }
  console.log(JSON.stringify({ name, refused, said, states }));
}
