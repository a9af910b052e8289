// @ts-check
/** What the figure shows at a playhead, worked out once for all its parts. */
import { Names, owners, requestOf } from "../../core/names.js";
import { ended } from "../../core/reduce/state.js";

/** @typedef {import("../../core/types.js").AnyEvent} AnyEvent */
/** @typedef {import("../../core/types.js").ArenaState} ArenaState */
/** @typedef {import("../../core/types.js").RequestState} RequestState */
/** @typedef {import("../../core/types.js").SequenceState} SequenceState */
/** @typedef {import("../../core/names.js").Owner} Owner */
/** @typedef {{block: number, texts: string[], fresh: number}} Row `fresh`: first slot written just now, or Infinity */
/** @typedef {{slot: number, text: string}} Pending picked, and not yet written: its slot counted from the start */
/** @typedef {{name: string, rows: Row[], pending: Pending | null}} Reading a sequence's logical blocks; `name` tells it from
 * its siblings, "" where there are none */
/**
 * @typedef {object} View
 * @property {ArenaState} state
 * @property {Names} names
 * @property {number} focus number of the request that is read, or -1
 * @property {RequestState | undefined} request
 * @property {string} said what the request that is read has answered so far: all its sequences
 * @property {Reading[]} readings its sequences that hold blocks, by number
 * @property {Map<number, Owner[]>} owners
 * @property {Map<number, number>} fresh block to the first slot of what this step wrote last, for each sequence
 * @property {number} currentBlock block of the event at the playhead, or -1
 * @property {AnyEvent | undefined} event
 * @property {AnyEvent | undefined} previous
 * @property {AnyEvent | undefined} next
 * @property {ArenaState} nextState the state in which `next` can be read
 */

/** @param {AnyEvent | undefined} event @returns {number} */
function blockOf(event) {
  if (!event) return -1;
  if ("block" in event) return event.block;
  if (event.type === "block_copied") return event.destinations[0] ?? -1;
  return event.type === "block_cached" ? event.blocks.at(-1) ?? -1 : -1;
}

/** Slots written last for each sequence by the envelope at the playhead so far, as block to first slot.
 * @param {import("../../core/log.js").EventLog} log @param {number} position @param {Map<number, Owner[]>} holders */
function freshSlots(log, position, holders) {
  /** @type {Map<number, {block: number, first: number}>} */
  const last = new Map();
  const start = log.markAt(position)?.start ?? position;
  for (let p = start + 1; p <= position; p += 1) {
    const event = log.eventAt(p);
    const owner = event?.type === "slots_written" ? holders.get(event.block)?.[0] : undefined;
    if (event?.type === "slots_written" && owner) last.set(owner.sequence, event);
  }
  return new Map([...last.values()].map(({ block, first }) => [block, first]));
}

/** @param {RequestState} request @param {SequenceState} sequence @param {Row[]} rows @returns {Pending | null} */
function pendingToken(request, sequence, rows) {
  if (request.status !== "running" || sequence.finish || !sequence.outputs.length) return null;
  const written = rows.reduce((sum, row) => sum + row.texts.length, 0);
  if (request.prompt_tokens + sequence.outputs.length !== written + 1) return null;
  return { slot: written, text: sequence.texts[sequence.texts.length - 1] };
}

/**
 * @param {import("../../core/session.js").Session} session @param {number} focus @returns {View}
 */
export function look(session, focus) {
  const { log, transport, names } = session;
  const position = transport.position;
  const state = log.stateAt(position);
  const holders = owners(state);
  const fresh = freshSlots(log, position, holders);
  const blocks = new Map(state.blocks.map((b) => [b.block, b]));
  const request = state.requests.find((r) => r.request === focus);
  const mine = state.sequences.filter((s) => s.request === focus);
  const readings = mine.filter((s) => s.table.length > 0).map((sequence) => {
    const rows = sequence.table.map((block) => ({
      block,
      texts: blocks.get(block)?.texts ?? [],
      fresh: fresh.get(block) ?? Infinity,
    }));
    const name = mine.length > 1 ? `sequence ${mine.indexOf(sequence) + 1}` : "";
    return { name, rows, pending: request ? pendingToken(request, sequence, rows) : null };
  });
  const event = log.eventAt(position);
  return {
    state,
    names,
    focus,
    request,
    said: mine.map((s) => s.texts.join("").trim()).filter(Boolean).join("\n"),
    readings,
    owners: holders,
    fresh,
    currentBlock: blockOf(event),
    event,
    previous: log.eventAt(position, -1),
    next: log.eventAt(position, 1),
    nextState: log.eventAt(position, 1) ? log.stateAt(position + 1) : state,
  };
}

/** The same memory with nobody's text to read and nothing pointed at: while the scene is being set. @param {View} view @returns {View} */
export function unread(view) {
  return { ...view, focus: -1, request: undefined, said: "", readings: [], currentBlock: -1 };
}

/** An empty memory, for the time before anything is known. @param {number} size @param {number} count @returns {View} */
export function blank(size, count) {
  const partition = { token_states: 0, held: 0, reserved: 0, internal: 0, external: 0, free: size * count, cached: 0 };
  /** @type {ArenaState} */
  const state = {
    manager: "paged", block_size: size, num_blocks: count, step: 0, paused: true, requests: [], sequences: [], blocks: [], partition,
    num_cpu_blocks: 0, cpu_blocks: [],
  };
  return {
    state,
    names: new Names(),
    focus: -1,
    request: undefined,
    said: "",
    readings: [],
    owners: new Map(),
    fresh: new Map(),
    currentBlock: -1,
    event: undefined,
    previous: undefined,
    next: undefined,
    nextState: state,
  };
}

/**
 * What stands in the panes, line by line: the logical blocks of each sequence, the block that its next token will open, and
 * a heading above each where there are several. `ghost`: slot of the token that is picked and not yet written, or -1.
 * @typedef {{heading: string, logical: number, row: Row | null, ghost: number, text: string}} Line
 * @param {View} view @returns {Line[]}
 */
export function lines(view) {
  const size = view.state.block_size;
  return view.readings.flatMap(({ name, rows, pending }) => {
    const open = pending !== null && pending.slot === rows.length * size ? [null] : [];
    const blocks = [...rows, ...open].map((row, logical) => {
      const here = pending && Math.floor(pending.slot / size) === logical;
      return { heading: "", logical, row, ghost: here ? pending.slot % size : -1, text: here ? pending.text : "" };
    });
    return name ? [{ heading: name, logical: -1, row: null, ghost: -1, text: "" }, ...blocks] : blocks;
  });
}

/** The requests to choose from: those alive at the playhead, those of the log at hand, and the one being read; at
 * most the last six. @param {View} view @param {ArenaState} head @returns {number[]} */
export function choices(view, head) {
  const alive = view.state.requests.filter((r) => !ended(r)).map((r) => r.request);
  const ours = head.requests.filter((r) => r.source !== "earlier").map((r) => r.request);
  const all = [...new Set([...alive, ...ours])].sort((a, b) => a - b);
  const last = all.slice(-6);
  if (view.focus >= 0 && !last.includes(view.focus) && all.includes(view.focus)) last[0] = view.focus;
  return last;
}

/** The request of the event at the playhead, or -1. @param {View} view */
export function eventRequest(view) {
  const event = view.event;
  if (!event) return -1;
  if ("request" in event) return event.request;
  if ("sequence" in event) return requestOf(view.state, event.sequence);
  return view.owners.get(blockOf(event))?.[0]?.request ?? -1;
}
