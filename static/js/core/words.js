// @ts-check
/** Events and states in words: the ticker's short line, a sentence for everyone, and the figure as text. */
import { owners, requestOf } from "./names.js";

/** @typedef {import("./types.js").AnyEvent} AnyEvent */
/** @typedef {import("./types.js").ArenaState} ArenaState */
/** @typedef {import("./names.js").Names} Names */
/** @typedef {string | {request: number}} Part text, or the letter of a request */

const COUNTS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"];

/** A number as running text has it. @param {number} n @returns {string} */
export function inWords(n) {
  return COUNTS[n] ?? String(n);
}

/** @param {number} n @param {string} one @param {string} [many] */
export function plural(n, one, many = `${one}s`) {
  return `${n} ${n === 1 ? one : many}`;
}

/** Milliseconds as people read them. @param {number} ms @returns {string} "215 ms", "2.2 s" */
export function duration(ms) {
  const whole = Math.round(ms);
  return whole < 1000 ? `${whole} ms` : `${(whole / 1000).toFixed(1)} s`;
}

/** @param {string[]} items @param {string} last @returns {string} "7, then 1, then 12" with last ", then " */
export function series(items, last) {
  return items.join(last);
}

/** A token in quotation marks, a line's end made visible. @param {string} text */
export function quoted(text) {
  const shown = text.replaceAll("\n", "↵").replaceAll("\t", "⇥");
  return `“${shown.length > 28 ? `${shown.slice(0, 27)}…` : shown}”`;
}

/** @param {number} first @param {number} count */
function slots(first, count) {
  return count === 1 ? `[${first}]` : `[${first}–${first + count - 1}]`;
}

/**
 * An event's own name and the rest of its line. `state` is one in which its block has an owner.
 * @param {AnyEvent} event @param {ArenaState} state @returns {{name: string, rest: Part[]}}
 */
export function short(event, state) {
  const name = event.type;
  const of = (/** @type {number} */ sequence) => ({ request: requestOf(state, sequence) });
  switch (event.type) {
    case "request_arrived":
      return { name, rest: [{ request: event.request }, `, ${plural(event.prompt_tokens, "token")}`] };
    case "request_admitted":
      return { name, rest: [{ request: event.request }] };
    case "request_finished":
    case "request_aborted":
      return { name, rest: [{ request: event.request }, `, ${event.reason}`] };
    case "request_refused":
      return { name, rest: [] };
    case "block_allocated":
      return { name, rest: [of(event.sequence), `[${event.logical}] → ${event.block}`] };
    case "slots_written":
      return { name, rest: [`${event.block}${slots(event.first, event.count)} ${quoted(event.texts.join(""))}`] };
    case "block_shared":
      return { name, rest: [of(event.sequence), `[${event.logical}] → ${event.block} ×${event.refs}`] };
    case "block_released":
      return { name, rest: [of(event.sequence), `, ${event.block}`, event.refs ? ` ×${event.refs}` : ""] };
    case "block_freed":
      return { name, rest: [`${event.block}`] };
    case "preempted":
      return { name, rest: [of(event.sequence)] };
    case "token_generated":
      return { name, rest: [of(event.sequence), ` ${quoted(event.text)}`] };
    case "step_completed":
      return { name, rest: [`${event.step}`] };
  }
}

const REASONS = /** @type {Record<string, string>} */ ({
  length: "it has reached its length",
  stop: "it has said its last word",
  capacity: "memory is full",
});

/**
 * An event as a sentence. `state` is the one after it.
 * @param {AnyEvent} event @param {ArenaState} state @param {Names} names @returns {string}
 */
export function sentence(event, state, names) {
  const by = (/** @type {number} */ sequence) => names.letter(requestOf(state, sequence));
  switch (event.type) {
    case "request_arrived":
      return `Request ${names.letter(event.request)} arrives with ${plural(event.prompt_tokens, "token")}, and waits.`;
    case "request_admitted":
      return `The scheduler lets ${names.letter(event.request)} run.`;
    case "request_refused":
      return `A request is refused: ${event.reason}`;
    case "request_finished":
      return `${names.letter(event.request)} ends after ${plural(event.output_tokens, "new token")}: ${REASONS[event.reason] ?? event.reason}.`;
    case "request_aborted":
      return `${names.letter(event.request)} is given up: ${event.reason}.`;
    case "block_allocated":
      return `Block ${event.block}, free until now, becomes logical block ${event.logical} of ${by(event.sequence)}.`;
    case "slots_written": {
      const owner = owners(state).get(event.block)?.[0];
      const whose = owner ? `, logical block ${owner.logical} of ${names.letter(owner.request)}` : "";
      return event.count === 1
        ? `The key and value of ${quoted(event.texts[0])} now lie in slot ${event.first} of block ${event.block}${whose}.`
        : `Keys and values of ${event.count} tokens now lie in block ${event.block}${whose}.`;
    }
    case "block_shared":
      return `${by(event.sequence)} refers to block ${event.block} too: ${event.refs} references now.`;
    case "block_released":
      return `${by(event.sequence)} lets go of block ${event.block}.`;
    case "block_freed":
      return `Nobody refers to block ${event.block} any more: it is free.`;
    case "preempted":
      return `${by(event.sequence)} loses its blocks, and waits to be computed again.`;
    case "token_generated":
      return `The model picks ${quoted(event.text)} for ${by(event.sequence)}. Its key and value come with the next step.`;
    case "step_completed": {
      const { schedule, forward, sample } = event.ms;
      return `Step ${event.step} is over: ${plural(event.batch, "request")}, ${plural(event.tokens, "token")}, ${duration(schedule + forward + sample)}.`;
    }
  }
}

/**
 * The whole figure as text, a paragraph a request.
 * @param {ArenaState} state @param {Names} names @returns {string[]}
 */
export function describe(state, names) {
  const filled = new Map(state.blocks.map((b) => [b.block, b]));
  const lines = state.requests
    .filter((r) => r.status === "running" || r.status === "waiting")
    .flatMap((r) => {
      const name = names.letter(r.request);
      if (r.status === "waiting") return [`Request ${name} waits with ${plural(r.prompt_tokens, "prompt token")}.`];
      return r.sequences.map((number) => {
        const table = state.sequences.find((s) => s.sequence === number)?.table ?? [];
        const blocks = table.map((b) => filled.get(b)?.tokens.length ?? 0);
        const tokens = blocks.reduce((sum, n) => sum + n, 0);
        if (!table.length) return `Request ${name} runs and has no block yet.`;
        const text = table.map((b) => filled.get(b)?.texts.join("") ?? "").join("");
        return `Request ${name}: ${plural(tokens, "token")} in ${plural(table.length, "block")}: ${table.join(", ")} `
          + `(the last has ${blocks.at(-1)} of ${state.block_size} slots filled). It reads: ${text.trim().replaceAll("\n", " ")}`;
      });
    });
  const free = state.num_blocks - state.blocks.length;
  return [...lines, `${free} of ${state.num_blocks} blocks are free.`];
}
