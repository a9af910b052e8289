// @ts-check
/** The reducer: the state of an arena is a pure function of a snapshot and the events after it. No event is believed
 * that memory cannot have done: an impossible one throws, and names itself. States are never changed in place. */

/** @typedef {import("./types.js").ArenaState} ArenaState */
/** @typedef {import("./types.js").AnyEvent} AnyEvent */
/** @typedef {import("./types.js").BlockState} BlockState */
/** @typedef {import("./types.js").RequestState} RequestState */
/** @typedef {import("./types.js").SequenceState} SequenceState */
/** @typedef {import("./types.js").Step} Step */

/** Finished and aborted requests that a state keeps. */
export const KEPT = 64;

/** An event that cannot have happened in the state before it. */
export class ImpossibleEvent extends Error {
  /** @param {AnyEvent} event @param {string} why */
  constructor(event, why) {
    super(`impossible ${event.type}: ${why} (${JSON.stringify(event)})`);
    this.name = "ImpossibleEvent";
    this.event = event;
  }
}

/**
 * The list with `item` in the place of the one of the same number, or at its sorted place.
 * @template T @param {T[]} list @param {(item: T) => number} number @param {T} item @returns {T[]}
 */
function put(list, number, item) {
  const n = number(item);
  let i = list.length;
  while (i > 0 && number(list[i - 1]) >= n) i -= 1;
  const next = list.slice();
  next.splice(i, i < list.length && number(list[i]) === n ? 1 : 0, item);
  return next;
}

/** @param {RequestState} r */ const requestNumber = (r) => r.request;
/** @param {SequenceState} s */ const sequenceNumber = (s) => s.sequence;
/** @param {BlockState} b */ const blockNumber = (b) => b.block;

/** @param {ArenaState} state @param {AnyEvent} event @param {number} number */
function request(state, event, number) {
  const found = state.requests.find((r) => r.request === number);
  if (!found) throw new ImpossibleEvent(event, `there is no request ${number}`);
  return found;
}

/** @param {ArenaState} state @param {AnyEvent} event @param {number} number */
function sequence(state, event, number) {
  const found = state.sequences.find((s) => s.sequence === number);
  if (!found) throw new ImpossibleEvent(event, `there is no sequence ${number}`);
  return found;
}

/** @param {ArenaState} state @param {AnyEvent} event @param {number} number */
function block(state, event, number) {
  if (number < 0 || number >= state.num_blocks)
    throw new ImpossibleEvent(event, `blocks are numbered 0 to ${state.num_blocks - 1}`);
  return state.blocks.find((b) => b.block === number);
}

/** @param {ArenaState} state @param {AnyEvent} event @param {number} number */
function blockInUse(state, event, number) {
  const found = block(state, event, number);
  if (!found || found.refs === 0) throw new ImpossibleEvent(event, `block ${number} is not in use`);
  return found;
}

/** @param {ArenaState} state @param {RequestState} item @returns {ArenaState} */
const withRequest = (state, item) => ({ ...state, requests: put(state.requests, requestNumber, item) });
/** @param {ArenaState} state @param {SequenceState} item @returns {ArenaState} */
const withSequence = (state, item) => ({ ...state, sequences: put(state.sequences, sequenceNumber, item) });
/** @param {ArenaState} state @param {BlockState} item @returns {ArenaState} */
const withBlock = (state, item) => ({ ...state, blocks: put(state.blocks, blockNumber, item) });

/**
 * How capacity is divided in this very state, counted slot by slot from the blocks in use; `state.partition` is what
 * the engine said at the end of the last envelope.
 * @param {ArenaState} state @returns {{written: number, empty: number, free: number}} slots
 */
export function count(state) {
  let owned = 0;
  let written = 0;
  for (const item of state.blocks) {
    if (item.refs === 0) continue;
    owned += state.block_size;
    written += item.tokens.length;
  }
  return { written, empty: owned - written, free: state.num_blocks * state.block_size - owned };
}

/**
 * The state after `event`.
 * @param {ArenaState} state @param {AnyEvent} event @returns {ArenaState}
 */
export function applyEvent(state, event) {
  switch (event.type) {
    case "request_arrived": {
      if (state.requests.some((r) => r.request === event.request))
        throw new ImpossibleEvent(event, `request ${event.request} is here already`);
      const { request, prompt_tokens, max_tokens, source } = event;
      return withRequest(state, { request, status: "waiting", prompt_tokens, max_tokens, source, sequences: [], reason: "" });
    }
    case "request_admitted": {
      const found = request(state, event, event.request);
      if (found.status !== "waiting") throw new ImpossibleEvent(event, `request ${event.request} is ${found.status}`);
      let next = withRequest(state, { ...found, status: "running", sequences: event.sequences.slice() });
      for (const number of event.sequences) {
        const known = next.sequences.find((s) => s.sequence === number);
        if (known && known.request !== event.request)
          throw new ImpossibleEvent(event, `sequence ${number} belongs to request ${known.request}`);
        if (!known)
          next = withSequence(next, { sequence: number, request: event.request, table: [], outputs: [], texts: [] });
      }
      return next;
    }
    case "request_refused":
      return state;
    case "request_finished":
    case "request_aborted": {
      const found = request(state, event, event.request);
      if (found.status === "finished" || found.status === "aborted")
        throw new ImpossibleEvent(event, `request ${event.request} is ${found.status}`);
      const status = event.type === "request_finished" ? "finished" : "aborted";
      return withRequest(state, { ...found, status, reason: event.reason });
    }
    case "block_allocated": {
      const taken = block(state, event, event.block);
      if (taken) throw new ImpossibleEvent(event, `block ${event.block} is in use, by ${taken.refs}`);
      const next = append(state, event);
      return withBlock(next, { block: event.block, refs: 1, tokens: [], texts: [] });
    }
    case "block_shared": {
      const found = blockInUse(state, event, event.block);
      if (event.refs !== found.refs + 1)
        throw new ImpossibleEvent(event, `block ${event.block} had ${found.refs} references, so now ${found.refs + 1}`);
      return withBlock(append(state, event), { ...found, refs: event.refs });
    }
    case "slots_written":
      return write(state, event);
    case "block_released": {
      const found = blockInUse(state, event, event.block);
      const owner = sequence(state, event, event.sequence);
      const at = owner.table.lastIndexOf(event.block);
      if (at < 0) throw new ImpossibleEvent(event, `sequence ${event.sequence} does not hold block ${event.block}`);
      if (event.refs !== found.refs - 1)
        throw new ImpossibleEvent(event, `block ${event.block} had ${found.refs} references, so now ${found.refs - 1}`);
      const next = withSequence(state, { ...owner, table: owner.table.filter((_, i) => i !== at) });
      return withBlock(next, { ...found, refs: event.refs });
    }
    case "block_freed": {
      const found = block(state, event, event.block);
      if (!found) throw new ImpossibleEvent(event, `block ${event.block} is free already`);
      if (found.refs !== 0) throw new ImpossibleEvent(event, `block ${event.block} has ${found.refs} references left`);
      return { ...state, blocks: state.blocks.filter((b) => b.block !== event.block) };
    }
    case "preempted": {
      const owner = request(state, event, sequence(state, event, event.sequence).request);
      if (owner.status !== "running") throw new ImpossibleEvent(event, `request ${owner.request} is ${owner.status}`);
      return withRequest(state, { ...owner, status: "waiting" });
    }
    case "token_generated": {
      const owner = sequence(state, event, event.sequence);
      const status = request(state, event, owner.request).status;
      if (status !== "running") throw new ImpossibleEvent(event, `request ${owner.request} is ${status}`);
      return withSequence(state, {
        ...owner,
        outputs: [...owner.outputs, event.token],
        texts: [...owner.texts, event.text],
      });
    }
    case "step_completed": {
      const mine = count(state);
      const theirs = event.partition;
      if (theirs.token_states !== mine.written || theirs.held + theirs.reserved + theirs.internal !== mine.empty
        || theirs.external + theirs.free !== mine.free)
        throw new ImpossibleEvent(event, `the blocks count to ${JSON.stringify(mine)}`);
      return { ...state, step: event.step, partition: { ...theirs } };
    }
    default: {
      const unknown = /** @type {{type: string}} */ (event);
      throw new ImpossibleEvent(/** @type {AnyEvent} */ (unknown), "no reducer knows this type: the page is older than the server");
    }
  }
}

/** One more line at the end of a sequence's table.
 * @param {ArenaState} state @param {import("./types.js").BlockAllocated | import("./types.js").BlockShared} event */
function append(state, event) {
  const owner = sequence(state, event, event.sequence);
  if (event.logical !== owner.table.length)
    throw new ImpossibleEvent(event, `the table of sequence ${event.sequence} has ${owner.table.length} lines`);
  return withSequence(state, { ...owner, table: [...owner.table, event.block] });
}

/** @param {ArenaState} state @param {import("./types.js").SlotsWritten} event @returns {ArenaState} */
function write(state, event) {
  const found = blockInUse(state, event, event.block);
  if (found.refs !== 1)
    throw new ImpossibleEvent(event, `block ${event.block} is shared by ${found.refs}: copy before writing`);
  if (event.count < 1 || event.tokens.length !== event.count || event.texts.length !== event.count)
    throw new ImpossibleEvent(event, `count ${event.count}, but ${event.tokens.length} tokens and ${event.texts.length} texts`);
  if (event.first !== found.tokens.length)
    throw new ImpossibleEvent(event, `the next slot of block ${event.block} is ${found.tokens.length}`);
  if (event.first + event.count > state.block_size)
    throw new ImpossibleEvent(event, `block ${event.block} ends at slot ${state.block_size - 1}`);
  return withBlock(state, {
    ...found,
    tokens: [...found.tokens, ...event.tokens],
    texts: [...found.texts, ...event.texts],
  });
}

/**
 * What holds at the end of an envelope: the arena's pause, how memory is divided, and only the last finished requests.
 * @param {ArenaState} state @param {{paused: boolean, partition: import("./types.js").Partition}} envelope @returns {ArenaState}
 */
export function endEnvelope(state, { paused, partition }) {
  const ended = state.requests.filter((r) => r.status === "finished" || r.status === "aborted");
  const dropped = new Set(ended.slice(0, Math.max(0, ended.length - KEPT)).map(requestNumber));
  if (!dropped.size) return { ...state, paused, partition };
  return {
    ...state,
    paused,
    partition,
    requests: state.requests.filter((r) => !dropped.has(r.request)),
    sequences: state.sequences.filter((s) => !dropped.has(s.request)),
  };
}

/**
 * The state after a whole envelope.
 * @param {ArenaState} state @param {Step} step @returns {ArenaState}
 */
export function applyEnvelope(state, step) {
  return endEnvelope(step.events.reduce(applyEvent, state), step);
}
