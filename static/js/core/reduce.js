// @ts-check
/** The reducer: the state of an arena is a pure function of a snapshot and the events after it. No event is believed
 * that memory cannot have done: an impossible one throws, and names itself. States are never changed in place. */
import * as blocks from "./reduce/blocks.js";
import * as regions from "./reduce/regions.js";
import * as requests from "./reduce/requests.js";
import { checkEnd, endEnvelope } from "./reduce/settle.js";
import * as slots from "./reduce/slots.js";
import { ImpossibleEvent, contiguous, within } from "./reduce/state.js";

export { count } from "./reduce/partition.js";
export { KEPT, checkOrder, endEnvelope } from "./reduce/settle.js";
export { ImpossibleEvent };

/** @typedef {import("./types.js").ArenaState} ArenaState */
/** @typedef {import("./types.js").AnyEvent} AnyEvent */
/** @typedef {Record<string, (state: ArenaState, event: any) => ArenaState>} Handlers by the type of event */

/** @type {Handlers} */
const ANYWHERE = {
  request_arrived: requests.arrived,
  request_admitted: requests.admitted,
  request_refused: (state) => state,
  sequence_forked: requests.forked,
  sequence_finished: requests.sequenceFinished,
  request_finished: requests.requestFinished,
  request_aborted: requests.requestAborted,
  token_generated: requests.tokenGenerated,
  step_completed: requests.stepCompleted,
  slots_written: slots.written,
  block_copied: slots.copied,
};
/** @type {Handlers} */
const PAGED = {
  ...ANYWHERE,
  block_allocated: blocks.allocated,
  block_shared: blocks.shared,
  prefix_hit: blocks.prefixHit,
  block_released: blocks.released,
  block_freed: blocks.freed,
  block_cached: blocks.cached,
  block_evicted: blocks.evicted,
  preempted: requests.preempted,
  swapped_out: slots.swappedOut,
  swapped_in: slots.swappedIn,
};
/** @type {Handlers} */
const CONTIGUOUS = {
  ...ANYWHERE,
  region_reserved: regions.reserved,
  block_allocated: regions.given,
  block_released: regions.returned,
  region_freed: regions.freed,
  reservation_failed: regions.reservationFailed,
};

/** What happens in a step alone. A request may arrive, or be aborted, after it and in the same envelope. */
const OF_A_STEP = ["request_admitted", "block_copied", "slots_written", "block_cached", "preempted", "swapped_out", "swapped_in",
  "token_generated", "step_completed"];

/**
 * The state after `event`.
 * @param {ArenaState} state @param {AnyEvent} event @returns {ArenaState}
 */
export function applyEvent(state, event) {
  if (within(state).stepped && OF_A_STEP.includes(event.type))
    throw new ImpossibleEvent(event, "the step has completed: this belongs to the next one, with an envelope of its own");
  const handlers = contiguous(state) ? CONTIGUOUS : PAGED;
  if (Object.hasOwn(handlers, event.type)) return handlers[event.type](state, event);
  const known = Object.hasOwn(PAGED, event.type) || Object.hasOwn(CONTIGUOUS, event.type);
  throw new ImpossibleEvent(event, known
    ? `memory of the manager ${state.manager} does no such thing`
    : "no reducer knows this type: the page is older than the server");
}

/**
 * The state after a whole envelope, which must leave memory in order.
 * @param {ArenaState} state @param {import("./types.js").Step} step @returns {ArenaState}
 */
export function applyEnvelope(state, step) {
  const last = step.events.reduce(applyEvent, state);
  const next = endEnvelope(last, step);
  checkEnd(last, next);
  return next;
}
