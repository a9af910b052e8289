// @ts-check
/** The events of slots: written, copied, swapped (sections 4.4, 4.5 and 5.1). */
import {
  ImpossibleEvent, blockIn, blockNumber, emptyBlock, find, holders, live, lives, noting, put, requestIn, room, sequenceNumber, shown,
  usedBlock, within, withBlock, withRequest, withSequence,
} from "./state.js";

/** @typedef {import("../types.js").ArenaState} ArenaState */
/** @typedef {import("../types.js").AnyEvent} AnyEvent */
/** @typedef {import("../types.js").BlockState} BlockState */

/** @param {ArenaState} state @param {import("../types.js").SlotsWritten} event @returns {ArenaState} */
export function written(state, event) {
  const { first, count, tokens, texts } = event;
  const block = usedBlock(state, event, event.block);
  if (block.refs !== 1) throw new ImpossibleEvent(event, `block ${event.block} is shared by ${block.refs}: copy before writing`);
  if (block.hash) throw new ImpossibleEvent(event, `the prefix cache keeps block ${event.block} under "${block.hash}"`);
  if (count < 1 || tokens.length !== count || texts.length !== count)
    throw new ImpossibleEvent(event, `count ${count}, but ${tokens.length} tokens and ${texts.length} texts`);
  if (first !== block.tokens.length) throw new ImpossibleEvent(event, `the next slot of block ${event.block} is ${block.tokens.length}`);
  if (first + count > room(state, block))
    throw new ImpossibleEvent(event, `block ${event.block} ends at slot ${room(state, block) - 1}`);
  const [owner] = holders(state, event.block);
  if (!owner || !lives(state, owner)) throw new ImpossibleEvent(event, `block ${event.block} belongs to a sequence that has ended`);
  const at = owner.table.indexOf(event.block);
  const before = at > 0 ? blockIn(state, event, owner.table[at - 1]) : null;
  if (before && before.tokens.length !== state.block_size)
    throw new ImpossibleEvent(event, `block ${before.block} before it has ${before.tokens.length} slots written`);
  const { uncopied, ran, rows } = within(state);
  const owed = uncopied.find((u) => u.block === event.block);
  if (owed) throw new ImpossibleEvent(event, `block ${owed.source} is to be copied into it first`);
  const next = withBlock(state, { ...block, tokens: [...block.tokens, ...tokens], texts: [...block.texts, ...texts] });
  return noting(next, { ran: ran.includes(owner.sequence) ? ran : [...ran, owner.sequence], rows: rows + count });
}

/** @param {ArenaState} state @param {import("../types.js").BlockCopied} event @returns {ArenaState} */
export function copied(state, event) {
  const { rows, copies, destinations, uncopied } = within(state);
  const { count } = event;
  if (rows) throw new ImpossibleEvent(event, "slots were written in this step already: copies come before");
  const source = blockIn(state, event, event.source);
  if (count < 1 || count > source.tokens.length) throw new ImpossibleEvent(event, `block ${event.source} has ${source.tokens.length} slots written`);
  if (destinations.includes(event.source)) throw new ImpossibleEvent(event, `block ${event.source} was copied to in this step already`);
  if (copies.some((c) => c.source === event.source && c.count === count))
    throw new ImpossibleEvent(event, `block ${event.source} is copied twice in one step: one event for all`);
  if (!event.destinations.length || new Set(event.destinations).size !== event.destinations.length)
    throw new ImpossibleEvent(event, "the destinations are none, or one of them twice");
  let next = state;
  for (const number of event.destinations) {
    const block = usedBlock(state, event, number);
    if (number === event.source || destinations.includes(number) || copies.some((c) => c.source === number))
      throw new ImpossibleEvent(event, `block ${number} takes part in another copy of this step`);
    if (block.refs !== 1 || block.tokens.length)
      throw new ImpossibleEvent(event, `block ${number} has count ${block.refs} and ${block.tokens.length} slots written`);
    const owed = uncopied.find((u) => u.block === number);
    if (owed && owed.source !== event.source) throw new ImpossibleEvent(event, `block ${number} replaces block ${owed.source}`);
    if (count > room(state, block) || block.request !== source.request)
      throw new ImpossibleEvent(event, `${count} slots of block ${event.source} do not go into block ${number}`);
    next = withBlock(next, { ...block, tokens: source.tokens.slice(0, count), texts: source.texts.slice(0, count) });
  }
  return noting(next, {
    copies: [...copies, { source: event.source, count }],
    destinations: [...destinations, ...event.destinations],
    uncopied: uncopied.filter((u) => !event.destinations.includes(u.block)),
  });
}

/** @param {AnyEvent} event @param {[number, number][]} pairs */
function mapping(event, pairs) {
  const map = new Map(pairs);
  if (map.size !== pairs.length || new Set(map.values()).size !== pairs.length)
    throw new ImpossibleEvent(event, "it moves a block twice, or two blocks to one place");
  return map;
}

/** @param {AnyEvent} event @param {Map<number, number>} moved @param {Iterable<number>} held @param {number} request */
function sameBlocks(event, moved, held, request) {
  const all = new Set(held);
  if (all.size !== moved.size || [...all].some((n) => !moved.has(n)))
    throw new ImpossibleEvent(event, `request ${request} holds ${shown([...all])}`);
}

/** @param {ArenaState} state @param {import("../types.js").SwappedOut} event @returns {ArenaState} */
export function swappedOut(state, event) {
  const request = requestIn(state, event, event.request, "swapped");
  const sequences = live(state, request);
  const toCpu = mapping(event, event.pairs);
  const held = sequences.flatMap((s) => s.table);
  sameBlocks(event, toCpu, held, event.request);
  let next = state;
  for (const [number, cpu] of toCpu) {
    if (cpu < 0 || cpu >= state.num_cpu_blocks) throw new ImpossibleEvent(event, `there are ${state.num_cpu_blocks} CPU blocks`);
    if (find(next.cpu_blocks, blockNumber, cpu)) throw new ImpossibleEvent(event, `CPU block ${cpu} is in use`);
    const { tokens, texts } = blockIn(state, event, number);
    const away = emptyBlock(cpu, { refs: held.filter((n) => n === number).length, tokens, texts });
    next = { ...next, cpu_blocks: put(next.cpu_blocks, blockNumber, away) };
  }
  return sequences.reduce((sum, s) => withSequence(sum, { ...s, cpu_table: s.table.map((n) => toCpu.get(n) ?? -1) }), next);
}

/** @param {ArenaState} state @param {import("../types.js").SwappedIn} event @returns {ArenaState} */
export function swappedIn(state, event) {
  if (within(state).rows) throw new ImpossibleEvent(event, "slots were written in this step already: swapping comes before");
  const request = requestIn(state, event, event.request, "swapped");
  const sequences = live(state, request);
  const fromCpu = mapping(event, event.pairs);
  sameBlocks(event, fromCpu, sequences.flatMap((s) => s.cpu_table), event.request);
  let next = withRequest(state, { ...request, status: "running" });
  for (const s of sequences) {
    const expected = s.cpu_table.map((n) => fromCpu.get(n) ?? -1);
    if (String(expected) !== String(s.table))
      throw new ImpossibleEvent(event, `sequence ${sequenceNumber(s)} has the table ${shown(s.table)}, and must have ${shown(expected)}`);
    next = withSequence(next, { ...s, cpu_table: [] });
  }
  for (const [cpu, number] of fromCpu) {
    const block = blockIn(state, event, number);
    const away = find(state.cpu_blocks, blockNumber, cpu);
    if (block.tokens.length || !away) throw new ImpossibleEvent(event, `block ${number} has ${block.tokens.length} slots written before`);
    next = withBlock(next, { ...block, tokens: away.tokens, texts: away.texts });
  }
  return { ...next, cpu_blocks: next.cpu_blocks.filter((b) => !fromCpu.has(b.block)) };
}
