// @ts-check
/** Events and states in words: the ticker's short line, a sentence for everyone, and the figure as text. */
import { owners, requestOf } from "./names.js";
import { ended } from "./reduce/state.js";

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
  const line = (/** @type {Part[]} */ ...rest) => ({ name, rest });
  switch (event.type) {
    case "request_arrived":
      return line({ request: event.request }, `, ${plural(event.prompt_tokens, "token")}`);
    case "request_admitted":
      return line({ request: event.request });
    case "request_finished":
    case "request_aborted":
      return line({ request: event.request }, `, ${event.reason}`);
    case "request_refused":
      return line();
    case "sequence_forked":
      return line(of(event.parent), ` ${event.parent} → ${event.sequence}`);
    case "sequence_finished":
      return line(of(event.sequence), `, ${event.reason}`);
    case "block_allocated":
      return line(of(event.sequence), `[${event.logical}] → ${event.block}`);
    case "slots_written":
      return line(`${event.block}${slots(event.first, event.count)} ${quoted(event.texts.join(""))}`);
    case "block_shared":
    case "prefix_hit":
      return line(of(event.sequence), `[${event.logical}] → ${event.block} ×${event.refs}`);
    case "block_released":
      return line(of(event.sequence), `, ${event.block}`, event.refs ? ` ×${event.refs}` : "");
    case "block_freed":
    case "block_evicted":
      return line(`${event.block}`);
    case "block_copied":
      return line(`${event.source}${slots(0, event.count)} → ${event.destinations.join(", ")}`);
    case "block_cached":
      return line({ request: event.request }, ` ${event.blocks.join(", ")}`);
    case "region_reserved":
    case "region_freed":
      return line({ request: event.request }, ` ${slots(event.start, event.size)}`);
    case "reservation_failed":
      return line({ request: event.request }, `, ${event.regions} × ${event.needed}`);
    case "preempted":
      return line({ request: event.request }, `, ${event.mode}`);
    case "swapped_out":
    case "swapped_in":
      return line({ request: event.request }, ` ${event.pairs.map(([from, to]) => `${from} → ${to}`).join(", ")}`);
    case "token_generated":
      return line(of(event.sequence), ` ${quoted(event.text)}`);
    case "step_completed":
      return line(`${event.step}`);
  }
}

const REASONS = /** @type {Record<string, string>} */ ({
  length: "it has reached its length",
  stop: "it has said its last word",
  capacity: "memory is full",
  registered: "it has been read, and its blocks are kept for whoever begins the same way",
});

/** What is said of a sequence: the letter of its request, with a number where that has had several.
 * @param {ArenaState} state @param {number} number @param {Names} names */
export function sequenceName(state, number, names) {
  const request = requestOf(state, number);
  const siblings = state.requests.find((r) => r.request === request)?.sequences ?? [];
  const letter = names.letter(request);
  return siblings.length > 1 ? `${letter}, sequence ${siblings.indexOf(number) + 1}` : letter;
}

/**
 * An event as a sentence. `state` is the one after it.
 * @param {AnyEvent} event @param {ArenaState} state @param {Names} names @returns {string}
 */
export function sentence(event, state, names) {
  const by = (/** @type {number} */ sequence) => sequenceName(state, sequence, names);
  const whole = (/** @type {number} */ sequence) => names.letter(requestOf(state, sequence));
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
    case "sequence_forked":
      return `${whole(event.parent)} forks: a new sequence begins with all that its parent has.`;
    case "sequence_finished":
      return event.reason === "dropped"
        ? `Beam search goes on without one of ${whole(event.sequence)}’s sequences.`
        : `The text of ${by(event.sequence)} is complete: ${REASONS[event.reason] ?? event.reason}.`;
    case "block_allocated":
      return state.manager === "paged"
        ? `Block ${event.block}, free until now, becomes logical block ${event.logical} of ${by(event.sequence)}.`
        : `The region from slot ${event.block} on is given to ${by(event.sequence)}.`;
    case "slots_written": {
      const owner = owners(state).get(event.block)?.[0];
      const whose = owner ? `, logical block ${owner.logical} of ${names.letter(owner.request)}` : "";
      return event.count === 1
        ? `The key and value of ${quoted(event.texts[0])} now lie in slot ${event.first} of block ${event.block}${whose}.`
        : `Keys and values of ${event.count} tokens now lie in block ${event.block}${whose}.`;
    }
    case "block_shared":
      return `${by(event.sequence)} refers to block ${event.block} too: ${event.refs} references now.`;
    case "prefix_hit":
      return `Block ${event.block} holds already what ${by(event.sequence)} begins with: ${plural(event.refs, "reference")} now.`;
    case "block_released":
      return `${by(event.sequence)} lets go of block ${event.block}.`;
    case "block_freed":
      return `Nobody refers to block ${event.block} any more: it is free.`;
    case "block_copied":
      return `Before anyone writes, ${plural(event.count, "slot")} of block ${event.source} ${event.count === 1 ? "is" : "are"} copied into `
        + `${event.destinations.length === 1 ? "block" : "blocks"} ${event.destinations.join(", ")}.`;
    case "block_cached":
      return `${plural(event.blocks.length, "full block")} of ${names.letter(event.request)} can be found now by whoever begins the same way.`;
    case "block_evicted":
      return `What the prefix cache kept in block ${event.block} is given up.`;
    case "region_reserved":
      return `${event.size} slots from slot ${event.start} on are reserved for ${names.letter(event.request)}, which asked for ${event.needed}.`;
    case "region_freed":
      return `${event.size} slots from slot ${event.start} on are free again.`;
    case "reservation_failed":
      return `${names.letter(event.request)} must wait: ${plural(event.regions, "region")} of ${plural(event.needed, "slot")} cannot be had, `
        + `the longest has ${event.largest_gap} of ${event.unallocated} free slots.`;
    case "preempted":
      return event.mode === "swap"
        ? `${names.letter(event.request)} must give up its blocks, and waits for its turn in main memory.`
        : `${names.letter(event.request)} loses its blocks, and waits to be computed again.`;
    case "swapped_out":
      return `What ${names.letter(event.request)} holds, ${plural(event.pairs.length, "block")}, is copied to main memory.`;
    case "swapped_in":
      return `What ${names.letter(event.request)} held, ${plural(event.pairs.length, "block")}, comes back from main memory.`;
    case "token_generated":
      return `The model picks ${quoted(event.text)} for ${by(event.sequence)}. Its key and value come with the next step.`;
    case "step_completed": {
      const { schedule, forward, sample } = event.ms;
      return `Step ${event.step} is over: ${plural(event.batch, "sequence")}, ${plural(event.tokens, "token")}, ${duration(schedule + forward + sample)}.`;
    }
  }
}

/**
 * The whole figure as text, a paragraph a request.
 * @param {ArenaState} state @param {Names} names @returns {string[]}
 */
export function describe(state, names) {
  const filled = new Map(state.blocks.map((b) => [b.block, b]));
  const lines = state.requests.filter((r) => !ended(r)).flatMap((r) => {
    const name = names.letter(r.request);
    if (r.status === "waiting") return [`Request ${name} waits with ${plural(r.prompt_tokens, "prompt token")}.`];
    if (r.status === "swapped") return [`Request ${name} waits in main memory.`];
    return r.sequences.flatMap((number) => {
      const sequence = state.sequences.find((s) => s.sequence === number);
      if (!sequence || sequence.finish) return [];
      const { table } = sequence;
      const who = sequenceName(state, number, names);
      if (!table.length) return [`Request ${who} runs and has no block yet.`];
      const blocks = table.map((b) => filled.get(b)?.tokens.length ?? 0);
      const tokens = blocks.reduce((sum, n) => sum + n, 0);
      const text = table.map((b) => filled.get(b)?.texts.join("") ?? "").join("");
      return [`Request ${who}: ${plural(tokens, "token")} in ${plural(table.length, "block")}: ${table.join(", ")} `
        + `(the last has ${blocks.at(-1)} of ${state.block_size} slots filled). It reads: ${text.trim().replaceAll("\n", " ")}`];
    });
  });
  const shared = state.blocks.filter((b) => b.refs > 1).map((b) => `${b.block} (${b.refs} references)`);
  if (shared.length) lines.push(`Shared blocks: ${shared.join(", ")}.`);
  const used = state.blocks.filter((b) => b.refs > 0).length;
  const kept = state.blocks.length - used;
  return [...lines, `${state.num_blocks - used} of ${state.num_blocks} blocks are free${kept ? `, ${kept} of them cached` : ""}.`];
}
