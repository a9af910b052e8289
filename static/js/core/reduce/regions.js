// @ts-check
/** The events of contiguous memory: regions that are reserved, given to a sequence, and freed (section 6.1). */
import { letGo } from "./blocks.js";
import { unallocated } from "./partition.js";
import {
  ImpossibleEvent, blockIn, blockNumber, emptyBlock, holders, requestIn, sequenceNumber, shown, taker, withBlock, withSequence, without,
} from "./state.js";

/** @typedef {import("../types.js").ArenaState} ArenaState */

/** @param {ArenaState} state @param {import("../types.js").RegionReserved} event */
export function reserved(state, event) {
  const { start, size, needed, request } = event;
  requestIn(state, event, request, "waiting", "running");
  if (needed < 1 || needed > size) throw new ImpossibleEvent(event, `a region of ${size} slots where ${needed} are needed`);
  const capacity = state.num_blocks * state.block_size;
  if (start < 0 || start + size > capacity) throw new ImpossibleEvent(event, `memory has ${capacity} slots`);
  const other = state.blocks.find((b) => start < b.block + b.size && b.block < start + size);
  if (other)
    throw new ImpossibleEvent(event, `it overlaps the region of request ${other.request}, slots ${other.block} to ${other.block + other.size - 1}`);
  return withBlock(state, emptyBlock(start, { refs: 0, size, needed, request }));
}

/** @param {ArenaState} state @param {import("../types.js").BlockAllocated} event */
export function given(state, event) {
  const region = blockIn(state, event, event.block);
  const owner = taker(state, event, event.sequence);
  if (region.request !== owner.request) throw new ImpossibleEvent(event, `region ${event.block} is of request ${region.request}`);
  if (region.refs)
    throw new ImpossibleEvent(event, `region ${event.block} is in use by sequence ${shown(holders(state, event.block).map(sequenceNumber))}`);
  if (event.logical !== 0 || owner.table.length) throw new ImpossibleEvent(event, `sequence ${event.sequence} has ${shown(owner.table)}`);
  return withBlock(withSequence(state, { ...owner, table: [event.block] }), { ...region, refs: 1, tokens: [], texts: [] });
}

/** It is the request's again and holds what it held: a fork of the one that had it may still be filled from it.
 * @param {ArenaState} state @param {import("../types.js").BlockReleased} event */
export function returned(state, event) {
  return letGo(state, event);
}

/** @param {ArenaState} state @param {import("../types.js").RegionFreed} event @returns {ArenaState} */
export function freed(state, event) {
  const region = blockIn(state, event, event.start);
  if (region.request !== event.request || region.size !== event.size)
    throw new ImpossibleEvent(event, `region ${event.start} has ${region.size} slots, of request ${region.request}`);
  if (region.refs) throw new ImpossibleEvent(event, `region ${event.start} is in use`);
  return { ...state, blocks: without(state.blocks, blockNumber, event.start) };
}

/** @param {ArenaState} state @param {import("../types.js").ReservationFailed} event */
export function reservationFailed(state, event) {
  requestIn(state, event, event.request, "waiting");
  const free = unallocated(state);
  if (event.unallocated !== free) throw new ImpossibleEvent(event, `${free} slots are unallocated`);
  const ends = state.blocks.map((b) => b.block + b.size);
  const gaps = [...state.blocks.map((b) => b.block), state.num_blocks * state.block_size].map((start, i) => start - (ends[i - 1] ?? 0));
  const gap = Math.max(...gaps);
  if (event.largest_gap > gap) throw new ImpossibleEvent(event, `the longest free run has ${gap} slots`);
  if (event.regions === 1 && event.needed <= event.largest_gap) throw new ImpossibleEvent(event, "there is room for it");
  return state;
}
