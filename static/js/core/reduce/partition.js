// @ts-check
/** How capacity is divided, counted slot by slot from the blocks alone (section 3.1). */
import { ImpossibleEvent, contiguous, holders, lives } from "./state.js";

/** @typedef {import("../types.js").ArenaState} ArenaState */

/** Slots that belong to nobody. @param {ArenaState} state */
export function unallocated(state) {
  const owned = state.blocks.reduce((sum, b) => sum + (contiguous(state) ? b.size : b.refs ? state.block_size : 0), 0);
  return state.num_blocks * state.block_size - owned;
}

/**
 * How capacity is divided in this very state; `state.partition` is what the engine said at the end of the last envelope.
 * @param {ArenaState} state @returns {{written: number, empty: number, free: number}} slots
 */
export function count(state) {
  const free = unallocated(state);
  const written = state.blocks.reduce((sum, b) => sum + (b.refs ? b.tokens.length : 0), 0);
  return { written, empty: state.num_blocks * state.block_size - free - written, free };
}

/** Throws where the engine divides its capacity otherwise than the blocks do. @param {ArenaState} state
 * @param {import("../types.js").AnyEvent | null} event that says so; null: the envelope @param {import("../types.js").Partition} p */
export function checkPartition(state, event, p) {
  const parts = [p.token_states, p.held, p.reserved, p.internal, p.external, p.free];
  const capacity = state.num_blocks * state.block_size;
  const sum = parts.reduce((a, b) => a + b, 0);
  if (Math.min(...parts, p.cached) < 0 || sum !== capacity) throw new ImpossibleEvent(event, `the parts add up to ${sum} of ${capacity} slots`);
  const free = unallocated(state);
  if (contiguous(state)) checkRegions(state, event, p, free);
  else {
    const { written } = count(state);
    const cached = state.blocks.reduce((total, b) => total + (!b.refs && b.hash ? b.tokens.length : 0), 0);
    if (p.token_states !== written || p.free + p.external !== free || p.cached !== cached)
      throw new ImpossibleEvent(event, `${written} slots are written, ${free} are nobody's, ${cached} of them cached; not ${JSON.stringify(p)}`);
  }
}

/** @param {ArenaState} state @param {import("../types.js").AnyEvent | null} event @param {import("../types.js").Partition} p
 * @param {number} free */
function checkRegions(state, event, p, free) {
  let written = 0;
  let ended = 0;
  let rounding = 0;
  for (const region of state.blocks) {
    rounding += region.size - region.needed;
    for (const holder of holders(state, region.block)) {
      if (lives(state, holder)) written += region.tokens.length;
      else ended += region.needed;
    }
  }
  if ((p.free !== 0 && p.free !== free) || p.external !== rounding + free - p.free)
    throw new ImpossibleEvent(event, `${rounding} slots are due to rounding, ${free} are nobody's; not ${JSON.stringify(p)}`);
  if (p.token_states !== written || p.internal < ended || p.cached)
    throw new ImpossibleEvent(event, `${written} slots are written, ${ended} belong to sequences that have ended; not ${JSON.stringify(p)}`);
}
