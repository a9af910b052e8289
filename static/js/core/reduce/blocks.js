// @ts-check
/** The events of blocks: on demand, shared, cached (sections 4.2 to 4.4). */
import {
  ImpossibleEvent, blockIn, blockNumber, emptyBlock, find, holders, noting, requestIn, sequenceIn, sequenceNumber, shown, taker,
  usedBlock, within, withBlock, withSequence, without,
} from "./state.js";

/** @typedef {import("../types.js").ArenaState} ArenaState */
/** @typedef {import("../types.js").AnyEvent} AnyEvent */
/** @typedef {import("../types.js").BlockState} BlockState */

/** @param {ArenaState} state @param {import("../types.js").BlockAllocated} event */
export function allocated(state, event) {
  const { block, logical } = event;
  if (block < 0 || block >= state.num_blocks)
    throw new ImpossibleEvent(event, `blocks are numbered 0 to ${state.num_blocks - 1}`);
  const taken = find(state.blocks, blockNumber, block);
  if (taken?.refs) throw new ImpossibleEvent(event, `block ${block} is in use: its count is ${taken.refs}`);
  if (taken) throw new ImpossibleEvent(event, `block ${block} is cached under "${taken.hash}" and was not evicted`);
  const owner = taker(state, event, event.sequence);
  if (logical < 0 || logical > owner.table.length)
    throw new ImpossibleEvent(event, `the table of sequence ${event.sequence} has ${owner.table.length} lines`);
  const next = withBlock(withSequence(state, { ...owner, table: [...owner.table.slice(0, logical), block, ...owner.table.slice(logical + 1)] }),
    emptyBlock(block));
  if (logical === owner.table.length) return next;
  const source = owner.table[logical];
  const { replaced, uncopied } = within(state);
  if (uncopied.some((u) => u.block === source))
    throw new ImpossibleEvent(event, `block ${source} was itself new in this envelope and holds nothing yet`);
  return noting(next, {
    replaced: [...replaced, { sequence: event.sequence, block: source }],
    uncopied: [...uncopied, { block, source }],
  });
}

/** @param {ArenaState} state @param {import("../types.js").BlockShared} event */
export function shared(state, event) {
  usedBlock(state, event, event.block);
  return refer(state, event);
}

/** @param {ArenaState} state @param {import("../types.js").PrefixHit} event */
export function prefixHit(state, event) {
  const block = blockIn(state, event, event.block);
  if (!event.hash || block.hash !== event.hash) throw new ImpossibleEvent(event, `block ${event.block} is cached under "${block.hash}"`);
  if (within(state).unfreed.includes(event.block)) throw new ImpossibleEvent(event, `block ${event.block} is not on the free list yet`);
  const owner = sequenceIn(state, event, event.sequence);
  const tokens = requestIn(state, event, owner.request).prompt_tokens + owner.outputs.length;
  if ((event.logical + 1) * state.block_size >= tokens)
    throw new ImpossibleEvent(event, `that would leave none of the ${tokens} tokens to compute`);
  return refer(state, event);
}

/** @param {ArenaState} state @param {import("../types.js").BlockShared | import("../types.js").PrefixHit} event */
function refer(state, event) {
  const owner = taker(state, event, event.sequence);
  const block = blockIn(state, event, event.block);
  if (event.logical !== owner.table.length)
    throw new ImpossibleEvent(event, `the table of sequence ${event.sequence} has ${owner.table.length} lines`);
  if (owner.table.includes(event.block))
    throw new ImpossibleEvent(event, `sequence ${event.sequence} has block ${event.block} already`);
  if (event.refs !== block.refs + 1)
    throw new ImpossibleEvent(event, `block ${event.block} had ${block.refs} references, so now ${block.refs + 1}`);
  return withBlock(withSequence(state, { ...owner, table: [...owner.table, event.block] }), { ...block, refs: event.refs });
}

/** @param {ArenaState} state @param {import("../types.js").BlockReleased} event */
export function released(state, event) {
  const next = letGo(state, event);
  return event.refs ? next : noting(next, { unfreed: [...within(next).unfreed, event.block] });
}

/** Takes a block out of a table: the one that copy-on-write has replaced, or one of a sequence that gives up all.
 * @param {ArenaState} state @param {import("../types.js").BlockReleased} event */
export function letGo(state, event) {
  const block = usedBlock(state, event, event.block);
  const owner = sequenceIn(state, event, event.sequence);
  if (event.refs !== block.refs - 1)
    throw new ImpossibleEvent(event, `block ${event.block} had ${block.refs} references, so now ${block.refs - 1}`);
  const next = withBlock(state, { ...block, refs: event.refs });
  const { replaced, leaving } = within(state);
  const old = replaced.findIndex((r) => r.sequence === event.sequence && r.block === event.block);
  if (old >= 0) return noting(next, { replaced: replaced.toSpliced(old, 1) });
  const at = owner.table.lastIndexOf(event.block);
  if (at < 0) throw new ImpossibleEvent(event, `sequence ${event.sequence} holds ${shown(owner.table)}`);
  if (!owner.finish && requestIn(state, event, owner.request).status === "running")
    throw new ImpossibleEvent(event, `sequence ${event.sequence} goes on and lets go of block ${event.block}`);
  const table = owner.table.toSpliced(at, 1);
  const others = leaving.filter((n) => n !== event.sequence);
  return noting(withSequence(next, { ...owner, table }), { leaving: table.length ? [...others, event.sequence] : others });
}

/** @param {ArenaState} state @param {number} block @returns {ArenaState} */
function forget(state, block) {
  const next = { ...state, blocks: without(state.blocks, blockNumber, block) };
  const { uncopied } = within(state);
  return uncopied.some((u) => u.block === block) ? noting(next, { uncopied: uncopied.filter((u) => u.block !== block) }) : next;
}

/** @param {ArenaState} state @param {import("../types.js").BlockFreed} event */
export function freed(state, event) {
  const block = blockIn(state, event, event.block);
  if (block.refs) throw new ImpossibleEvent(event, `block ${event.block} has ${block.refs} references left`);
  const { unfreed } = within(state);
  if (!unfreed.includes(event.block)) throw new ImpossibleEvent(event, `block ${event.block} is free already, and cached under "${block.hash}"`);
  const next = noting(state, { unfreed: unfreed.filter((n) => n !== event.block) });
  return block.hash ? next : forget(next, event.block);
}

/** @param {ArenaState} state @param {import("../types.js").BlockEvicted} event */
export function evicted(state, event) {
  const block = blockIn(state, event, event.block);
  if (block.refs || within(state).unfreed.includes(event.block))
    throw new ImpossibleEvent(event, `block ${event.block} is not on the free list: its count is ${block.refs}`);
  if (!event.hash || block.hash !== event.hash) throw new ImpossibleEvent(event, `block ${event.block} is cached under "${block.hash}"`);
  return forget(state, event.block);
}

/** @param {ArenaState} state @param {import("../types.js").BlockCached} event */
export function cached(state, event) {
  const { blocks, hashes } = event;
  if (!blocks.length || blocks.length !== hashes.length) throw new ImpossibleEvent(event, `${blocks.length} blocks and ${hashes.length} hashes`);
  if (new Set(hashes).size !== hashes.length || hashes.includes("")) throw new ImpossibleEvent(event, "the hashes are not one for each block");
  const known = new Map(state.blocks.filter((b) => b.hash).map((b) => [b.hash, b.block]));
  const found = blocks.map((n, i) => {
    const block = usedBlock(state, event, n);
    if (block.hash) throw new ImpossibleEvent(event, `block ${n} is cached already, under "${block.hash}"`);
    if (known.has(hashes[i])) throw new ImpossibleEvent(event, `"${hashes[i]}" is the hash of block ${known.get(hashes[i])} already`);
    if (block.tokens.length !== state.block_size)
      throw new ImpossibleEvent(event, `block ${n} has ${block.tokens.length} of ${state.block_size} slots written: not full`);
    return block;
  });
  if (String(found.flatMap((b) => b.tokens)) !== String(event.tokens)) throw new ImpossibleEvent(event, "the blocks hold other tokens");
  checkParent(state, event);
  return found.reduce((next, block, i) => withBlock(next, { ...block, hash: hashes[i] }), state);
}

/** @param {ArenaState} state @param {import("../types.js").BlockCached} event */
function checkParent(state, event) {
  const mine = requestIn(state, event, event.request).sequences;
  const owner = holders(state, event.blocks[0]).find((s) => mine.includes(sequenceNumber(s)) && event.blocks.every((n) => s.table.includes(n)));
  if (!owner) throw new ImpossibleEvent(event, `no sequence of request ${event.request} holds all the blocks`);
  const logical = event.blocks.map((n) => owner.table.indexOf(n));
  if (logical.some((at, i) => i > 0 && at <= logical[i - 1]))
    throw new ImpossibleEvent(event, `the blocks are not in the order of the text, ${shown(owner.table)}`);
  if (logical[0] === 0) {
    if (event.parent) throw new ImpossibleEvent(event, `block ${event.blocks[0]} is the first of its sequence and has a parent`);
    return;
  }
  // The block before may hold the same as another one that the cache knows, and then it has no hash of its own.
  const before = blockIn(state, event, owner.table[logical[0] - 1]).hash;
  if (!event.parent || (before && before !== event.parent))
    throw new ImpossibleEvent(event, `the block before block ${event.blocks[0]} has the hash "${before}"`);
}
