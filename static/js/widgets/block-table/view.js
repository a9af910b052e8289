// @ts-check
/** What the figure shows at a playhead, worked out once for all its parts. */
import { Names, owners, requestOf } from "../../core/names.js";

/** @typedef {import("../../core/types.js").AnyEvent} AnyEvent */
/** @typedef {import("../../core/types.js").ArenaState} ArenaState */
/** @typedef {import("../../core/types.js").RequestState} RequestState */
/** @typedef {import("../../core/types.js").SequenceState} SequenceState */
/** @typedef {import("../../core/names.js").Owner} Owner */
/** @typedef {{block: number, texts: string[], fresh: number}} Row `fresh`: first slot written just now, or Infinity */
/**
 * @typedef {object} View
 * @property {ArenaState} state
 * @property {Names} names
 * @property {number} focus number of the request that is read, or -1
 * @property {RequestState | undefined} request
 * @property {SequenceState | undefined} sequence
 * @property {Row[]} rows the logical blocks of the request that is read
 * @property {{slot: number, text: string} | null} pending picked, and not yet written: its slot counted from the start
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
  return event && "block" in event ? event.block : -1;
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

/** @param {RequestState | undefined} request @param {SequenceState | undefined} sequence @param {Row[]} rows */
function pendingToken(request, sequence, rows) {
  if (!request || !sequence || request.status !== "running" || !sequence.outputs.length) return null;
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
  const sequence = state.sequences.find((s) => s.request === focus);
  const rows = (sequence?.table ?? []).map((block) => ({
    block,
    texts: blocks.get(block)?.texts ?? [],
    fresh: fresh.get(block) ?? Infinity,
  }));
  const event = log.eventAt(position);
  return {
    state,
    names,
    focus,
    request,
    sequence,
    rows,
    pending: pendingToken(request, sequence, rows),
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
  return { ...view, focus: -1, request: undefined, sequence: undefined, rows: [], pending: null, currentBlock: -1 };
}

/** An empty memory, for the time before anything is known. @param {number} size @param {number} count @returns {View} */
export function blank(size, count) {
  const partition = { token_states: 0, held: 0, reserved: 0, internal: 0, external: 0, free: size * count };
  /** @type {ArenaState} */
  const state = { manager: "paged", block_size: size, num_blocks: count, step: 0, paused: true, requests: [], sequences: [], blocks: [], partition };
  return {
    state,
    names: new Names(),
    focus: -1,
    request: undefined,
    sequence: undefined,
    rows: [],
    pending: null,
    owners: new Map(),
    fresh: new Map(),
    currentBlock: -1,
    event: undefined,
    previous: undefined,
    next: undefined,
    nextState: state,
  };
}

/** The requests to choose from: those alive at the playhead, those of the log at hand, and the one being read; at
 * most the last six. @param {View} view @param {ArenaState} head @returns {number[]} */
export function choices(view, head) {
  const alive = view.state.requests.filter((r) => r.status === "waiting" || r.status === "running").map((r) => r.request);
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
