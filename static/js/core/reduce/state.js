// @ts-check
/** What the handlers of events share: finding, putting and noting things in a state that is never changed in place. */

/** @typedef {import("../types.js").ArenaState} ArenaState */
/** @typedef {import("../types.js").AnyEvent} AnyEvent */
/** @typedef {import("../types.js").BlockState} BlockState */
/** @typedef {import("../types.js").RequestState} RequestState */
/** @typedef {import("../types.js").SequenceState} SequenceState */
/** @typedef {import("../types.js").Within} Within */

/** An event that cannot have happened in the state before it; or, with no event, an end that no envelope can have. */
export class ImpossibleEvent extends Error {
  /** @param {AnyEvent | null} event @param {string} why */
  constructor(event, why) {
    super(event ? `impossible ${event.type}: ${why} (${JSON.stringify(event)})` : `impossible end of an envelope: ${why}`);
    this.name = "ImpossibleEvent";
    this.event = event;
  }
}

/** @param {RequestState} r */ export const requestNumber = (r) => r.request;
/** @param {SequenceState} s */ export const sequenceNumber = (s) => s.sequence;
/** @param {BlockState} b */ export const blockNumber = (b) => b.block;

/** Index of the first item whose number is at least `n`. @template T @param {T[]} list @param {(item: T) => number} number
 * @param {number} n */
function place(list, number, n) {
  let low = 0;
  let high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (number(list[middle]) < n) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** @template T @param {T[]} list sorted by number @param {(item: T) => number} number @param {number} n @returns {T | undefined} */
export function find(list, number, n) {
  const item = list[place(list, number, n)];
  return item !== undefined && number(item) === n ? item : undefined;
}

/** The list with `item` in the place of the one of the same number, or at its sorted place.
 * @template T @param {T[]} list @param {(item: T) => number} number @param {T} item @returns {T[]} */
export function put(list, number, item) {
  const n = number(item);
  const at = place(list, number, n);
  const next = list.slice();
  if (at < list.length && number(list[at]) === n) next[at] = item;
  else next.splice(at, 0, item);
  return next;
}

/** The list without the one of that number. @template T @param {T[]} list @param {(item: T) => number} number @param {number} n */
export function without(list, number, n) {
  return list.filter((item) => number(item) !== n);
}

/** @param {ArenaState} state @returns {boolean} whether memory is one of regions, and not paged */
export const contiguous = (state) => state.manager !== "paged";

/** @param {number[]} list */
export const shown = (list) => `[${list.join(", ")}]`;

/** @param {ArenaState} state @param {AnyEvent} event @param {number} number @param {...string} statuses one of which it must have */
export function requestIn(state, event, number, ...statuses) {
  const found = find(state.requests, requestNumber, number);
  if (!found) throw new ImpossibleEvent(event, `there is no request ${number}`);
  if (statuses.length && !statuses.includes(found.status))
    throw new ImpossibleEvent(event, `request ${number} is ${found.status}, and must be ${statuses.join(" or ")}`);
  return found;
}

/** @param {ArenaState} state @param {AnyEvent} event @param {number} number */
export function sequenceIn(state, event, number) {
  const found = find(state.sequences, sequenceNumber, number);
  if (!found) throw new ImpossibleEvent(event, `there is no sequence ${number}`);
  return found;
}

/** A block that is in use or cached. @param {ArenaState} state @param {AnyEvent} event @param {number} number */
export function blockIn(state, event, number) {
  const found = find(state.blocks, blockNumber, number);
  if (!found) throw new ImpossibleEvent(event, `block ${number} is free and holds nothing`);
  return found;
}

/** @param {ArenaState} state @param {AnyEvent} event @param {number} number */
export function usedBlock(state, event, number) {
  const found = blockIn(state, event, number);
  if (!found.refs) throw new ImpossibleEvent(event, `block ${number} is not in use: its count is 0`);
  return found;
}

/** A sequence that may be given blocks now. @param {ArenaState} state @param {AnyEvent} event @param {number} number */
export function taker(state, event, number) {
  const found = sequenceIn(state, event, number);
  requestIn(state, event, found.request, "running", "swapped");
  if (found.finish) throw new ImpossibleEvent(event, `sequence ${number} has ended (${found.finish}) and takes no block`);
  if (within(state).leaving.includes(number))
    throw new ImpossibleEvent(event, `sequence ${number} is letting go of its blocks and still has ${shown(found.table)}`);
  return found;
}

/** Its sequences that go on, by number. @param {ArenaState} state @param {RequestState} request @returns {SequenceState[]} */
export function live(state, request) {
  return request.sequences.flatMap((n) => find(state.sequences, sequenceNumber, n) ?? []).filter((s) => !s.finish);
}

/** @param {RequestState} request */
export const ended = (request) => request.status === "finished" || request.status === "aborted";

/** Whether a sequence goes on, and its request too. @param {ArenaState} state @param {SequenceState} sequence */
export function lives(state, sequence) {
  const request = find(state.requests, requestNumber, sequence.request);
  return !sequence.finish && request !== undefined && !ended(request);
}

/** Whether a request, or one of its sequences, may hold blocks though it has ended: a registered prefix, or a member of a
 * static batch. @param {ArenaState} state @param {RequestState} request */
export function keepsMemory(state, request) {
  return state.manager === "static_batch" || (request.status === "finished" && request.reason === "registered");
}

/** The sequences that hold a block. @param {ArenaState} state @param {number} block */
export function holders(state, block) {
  return state.sequences.filter((s) => s.table.includes(block));
}

/** Slots of a block that may be written. @param {ArenaState} state @param {BlockState} block */
export const room = (state, block) => (contiguous(state) ? block.needed : state.block_size);

/** @param {ArenaState} state @param {RequestState} item @returns {ArenaState} */
export const withRequest = (state, item) => ({ ...state, requests: put(state.requests, requestNumber, item) });
/** @param {ArenaState} state @param {SequenceState} item @returns {ArenaState} */
export const withSequence = (state, item) => ({ ...state, sequences: put(state.sequences, sequenceNumber, item) });
/** @param {ArenaState} state @param {BlockState} item @returns {ArenaState} */
export const withBlock = (state, item) => ({ ...state, blocks: put(state.blocks, blockNumber, item) });

/** @param {number} block @param {Partial<BlockState>} [more] @returns {BlockState} */
export const emptyBlock = (block, more) =>
  ({ block, refs: 1, tokens: [], texts: [], hash: "", size: 0, needed: 0, request: -1, ...more });

/** @type {Within} */
const NOTHING = Object.freeze({
  replaced: [], uncopied: [], copies: [], destinations: [], unfreed: [], leaving: [], dropped: [], bare: [], ran: [], rows: 0,
  stepped: false,
});

/** What has happened since the last envelope. @param {ArenaState} state */
export const within = (state) => state.within ?? NOTHING;

/** @param {ArenaState} state @param {Partial<Within>} changes @returns {ArenaState} */
export const noting = (state, changes) => ({ ...state, within: { ...within(state), ...changes } });
