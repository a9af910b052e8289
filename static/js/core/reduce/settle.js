// @ts-check
/** What holds at the end of an envelope. */
import { checkPartition } from "./partition.js";
import {
  ImpossibleEvent, blockNumber, contiguous, ended, find, keepsMemory, lives, requestNumber, room, sequenceNumber, shown, within,
} from "./state.js";

/** @typedef {import("../types.js").ArenaState} ArenaState */
/** @typedef {import("../types.js").RequestState} RequestState */
/** @typedef {import("../types.js").SequenceState} SequenceState */

/** Finished and aborted requests that a state keeps. */
export const KEPT = 64;

/** @param {string} why @returns {never} */
function impossible(why) {
  throw new ImpossibleEvent(null, why);
}

/** Throws where this envelope has begun what it does not end, or left memory in disorder.
 * @param {ArenaState} before the state at its last event @param {ArenaState} after it, with what ended forgotten */
export function checkEnd(before, after) {
  const { replaced, uncopied, unfreed, leaving, dropped, bare, rows, stepped } = within(before);
  for (const { sequence, block } of replaced) impossible(`sequence ${sequence} replaced block ${block} and never let go of it`);
  for (const { block, source } of uncopied)
    if (find(before.blocks, blockNumber, block)?.refs) impossible(`block ${block} replaces block ${source}, whose content was never copied`);
  for (const block of unfreed) impossible(`block ${block} has no reference left and was never freed`);
  for (const sequence of leaving) impossible(`sequence ${sequence} lets go of some blocks and keeps others`);
  for (const number of [...dropped, ...bare]) {
    const sequence = find(before.sequences, sequenceNumber, number);
    if (sequence && dropped.includes(number) && sequence.table.length) impossible(`sequence ${number} was dropped and holds ${shown(sequence.table)}`);
    if (sequence && lives(before, sequence) && !sequence.table.length) impossible(`sequence ${number} got a token, goes on, and holds no block`);
  }
  if (rows && !stepped) impossible(`${rows} slots were written and no step completed`);
  checkOrder(after);
}

/** Tables, counts and contents agree. @param {ArenaState} state */
export function checkOrder(state) {
  const requests = new Map(state.requests.map((r) => [r.request, r]));
  const blocks = new Map(state.blocks.map((b) => [b.block, b]));
  checkNames(state, requests);
  checkCounts(state, requests);
  /** @type {Map<number, number[]>} */
  const prompts = new Map();
  for (const sequence of state.sequences) {
    const request = requests.get(sequence.request);
    if (!request) continue;
    checkPlace(state, request, sequence);
    if (!sequence.table.length) continue;
    const stored = sequence.table.flatMap((n) => blocks.get(n)?.tokens ?? []);
    const said = stored.slice(request.prompt_tokens);
    if (!begins(sequence.outputs, said)) impossible(`sequence ${sequence.sequence} said ${shown(sequence.outputs)}, its blocks hold ${shown(said)}`);
    const prompt = stored.slice(0, request.prompt_tokens);
    const known = prompts.get(request.request) ?? prompt;
    const longer = prompt.length > known.length ? prompt : known;
    if (!begins(longer, prompt) || !begins(longer, known)) impossible(`the sequences of request ${request.request} hold different prompts`);
    prompts.set(request.request, longer);
  }
  for (const request of state.requests)
    if (request.status === "swapped" && !state.sequences.some((s) => s.request === request.request && s.cpu_table.length))
      impossible(`request ${request.request} is swapped out and has no CPU block`);
  checkPartition(state, null, state.partition);
}

/** @param {number[]} list @param {number[]} start */
function begins(list, start) {
  return start.length <= list.length && start.every((token, i) => token === list[i]);
}

/** @param {ArenaState} state @param {Map<number, RequestState>} requests */
function checkNames(state, requests) {
  for (const { request, sequences } of state.requests)
    for (const number of sequences)
      if (find(state.sequences, sequenceNumber, number)?.request !== request) impossible(`request ${request} names sequence ${number}, which is none of its own`);
  for (const { sequence, request } of state.sequences)
    if (!requests.get(request)?.sequences.includes(sequence)) impossible(`sequence ${sequence} belongs to request ${request}, which has it not`);
}

/** @param {number[]} list @returns {Map<number, number>} */
function tally(list) {
  const counts = new Map();
  for (const n of list) counts.set(n, (counts.get(n) ?? 0) + 1);
  return counts;
}

/** @param {ArenaState} state @param {Map<number, RequestState>} requests */
function checkCounts(state, requests) {
  const tables = tally(state.sequences.flatMap((s) => s.table));
  for (const block of state.blocks) {
    const { refs, tokens, texts } = block;
    const times = tables.get(block.block) ?? 0;
    if (refs !== times) impossible(`block ${block.block}: count ${refs}, in tables ${times} times`);
    if (tokens.length > room(state, block) || tokens.length !== texts.length) impossible(`block ${block.block} holds ${shown(tokens)}`);
    if (contiguous(state)) {
      const owner = requests.get(block.request);
      const may = !owner || owner.status === "running" || (ended(owner) && keepsMemory(state, owner));
      if (refs > 1 || !may) impossible(`region ${block.block} has count ${refs} and belongs to request ${block.request}, ${owner?.status}`);
    } else if (!refs && !block.hash) impossible(`block ${block.block} has no reference and no hash, and is not free`);
    tables.delete(block.block);
  }
  if (tables.size) impossible(`tables name ${shown([...tables.keys()])}, which are free`);
  const away = tally(state.sequences.flatMap((s) => s.cpu_table));
  for (const { block, refs } of state.cpu_blocks) {
    if (refs !== away.get(block)) impossible(`CPU block ${block}: count ${refs}, in tables ${away.get(block) ?? 0} times`);
    away.delete(block);
  }
  if (away.size) impossible(`CPU tables name ${shown([...away.keys()])}, which are free`);
}

/** Blocks are held by what runs, CPU blocks by what is swapped out. @param {ArenaState} state @param {RequestState} request
 * @param {SequenceState} sequence */
function checkPlace(state, request, sequence) {
  const { finish, table, cpu_table } = sequence;
  const over = finish !== "" || ended(request);
  const may = (request.status === "running" && !finish) || (over && keepsMemory(state, request));
  if (table.length && !may) impossible(`sequence ${sequence.sequence} (${finish || request.status}) holds ${shown(table)}`);
  if (cpu_table.length && (finish || request.status !== "swapped")) impossible(`sequence ${sequence.sequence} has the CPU blocks ${shown(cpu_table)}`);
}

/**
 * The arena's pause, how memory is divided, and only the last ended requests and those that hold memory.
 * @param {ArenaState} state @param {{paused: boolean, partition: import("../types.js").Partition}} envelope @returns {ArenaState}
 */
export function endEnvelope(state, { paused, partition }) {
  const { within: open, ...rest } = state;
  /** @type {ArenaState} */
  let next = { ...rest, paused, partition };
  if (open?.dropped.length) {
    const gone = new Set(open.dropped);
    next = {
      ...next,
      sequences: next.sequences.filter((s) => !gone.has(s.sequence)),
      requests: next.requests.map((r) => (r.sequences.some((n) => gone.has(n)) ? { ...r, sequences: r.sequences.filter((n) => !gone.has(n)) } : r)),
    };
  }
  const over = next.requests.filter(ended);
  const old = over.slice(0, Math.max(0, over.length - KEPT)).filter((r) => !holdsMemory(next, r)).map(requestNumber);
  if (!old.length) return next;
  const forgotten = new Set(old);
  return {
    ...next,
    requests: next.requests.filter((r) => !forgotten.has(r.request)),
    sequences: next.sequences.filter((s) => !forgotten.has(s.request)),
  };
}

/** @param {ArenaState} state @param {RequestState} request */
function holdsMemory(state, request) {
  return state.sequences.some((s) => s.request === request.request && s.table.length > 0)
    || state.blocks.some((b) => b.request === request.request);
}
