// @ts-check
/** Where what is shown comes from, in words: live and of which model, recorded and why, or what is being waited for. */
import { modelLine } from "./head.js";

/**
 * `recorded`: the header of the recording that is on show; `shown`: something is. `missing`: why there is no recording.
 * @typedef {{up: boolean, crowded: boolean, attached: boolean, lost: boolean, queue: number, closed: string, refusal: string,
 *   note: string, missing: string, restarted: boolean, shown: boolean,
 *   status: import("../../core/types.js").Status | null, recorded: import("../../core/types.js").TraceHeader | null}} Facts
 */

/** @param {Facts} facts @returns {import("./head.js").Source} */
export function sourceLabel(facts) {
  const { status, recorded } = facts;
  if (facts.attached && status?.state === "ready" && status.model) {
    const remarks = [facts.restarted ? "the engine was started again" : "", facts.note];
    return { kind: "live", title: "live:", words: [modelLine(status.model), ...remarks].filter(Boolean).join("; "), progress: null, action: "" };
  }
  const { words, progress, action } = waiting(facts);
  if (!recorded) return { kind: "waiting", title: "", words, progress, action };
  return { kind: "recorded", title: `recorded on ${recorded.recorded}:`, words: `${modelLine(recorded.model)}; ${words}`, progress, action };
}

/** Why it is not live. @param {Facts} facts @returns {{words: string, progress: number | null, action: string}} */
function waiting({ up, crowded, lost, queue, closed, refusal, note, missing, shown, status }) {
  const say = (/** @type {string} */ words) => ({ words: missing ? `${words} (${missing})` : words, progress: null, action: "" });
  if (crowded) return say("the server has too many readers at the moment; this page asks again by itself");
  if (lost) return say("no server answers");
  if (queue) return say(`all memories are taken, you are number ${queue} in the queue`);
  if (!up) return { words: shown ? "the connection is gone, trying again" : "asking the server", progress: null, action: "" };
  if (status?.state === "failed") return say(`the engine has failed: ${status.stage ?? ""}`);
  if (status && status.state !== "ready") {
    const what = status.state === "restarting" ? "the engine starts again" : "the model is loading";
    return { words: `${what}${status.stage ? `: ${status.stage}` : ""}`, progress: status.progress ?? 0, action: "" };
  }
  if (closed) return { words: `this memory is closed: ${closed}`, progress: null, action: "open another" };
  if (refusal) return say(`the server opens no memory for this figure: ${refusal}`);
  return { words: note || "opening a memory", progress: null, action: "" };
}
