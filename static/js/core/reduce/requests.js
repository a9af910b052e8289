// @ts-check
/** The events of requests, sequences and steps. */
import { checkPartition } from "./partition.js";
import {
  ImpossibleEvent, blockNumber, find, live, noting, put, requestIn, requestNumber, sequenceIn, sequenceNumber, shown, within,
  withRequest, withSequence,
} from "./state.js";

/** @typedef {import("../types.js").ArenaState} ArenaState */
/** @typedef {import("../types.js").AnyEvent} AnyEvent */
/** @typedef {import("../types.js").RequestState} RequestState */

/** @param {ArenaState} state @param {AnyEvent} event */
function beforeTheForwardPass(state, event) {
  if (within(state).rows) throw new ImpossibleEvent(event, "slots were written in this step already: what runs is decided before");
}

/** @param {ArenaState} state @param {AnyEvent} event @param {RequestState} request @param {number[]} sequences */
function allTogether(state, event, request, sequences) {
  const going = live(state, request).map(sequenceNumber);
  if (String(sequences.toSorted((a, b) => a - b)) !== String(going))
    throw new ImpossibleEvent(event, `those of request ${request.request} that go on are ${shown(going)}`);
}

/** @param {ArenaState} state @param {import("../types.js").RequestArrived} event */
export function arrived(state, event) {
  const { request, prompt_tokens, max_tokens, source, width, beam, priority } = event;
  const last = state.requests.at(-1);
  if (last && request <= last.request) throw new ImpossibleEvent(event, `request ${last.request} has arrived already`);
  if (prompt_tokens < 1 || width < 1) throw new ImpossibleEvent(event, "at least 1 prompt token and 1 sequence");
  return withRequest(state, {
    request, status: "waiting", prompt_tokens, max_tokens, source, sequences: [], reason: "", width, beam, priority,
  });
}

/** @param {ArenaState} state @param {import("../types.js").RequestAdmitted} event */
export function admitted(state, event) {
  beforeTheForwardPass(state, event);
  const request = requestIn(state, event, event.request, "waiting");
  if (request.sequences.length) {
    allTogether(state, event, request, event.sequences);
    return withRequest(state, { ...request, status: "running" });
  }
  const [first, ...more] = event.sequences;
  if (first === undefined || more.length || find(state.sequences, sequenceNumber, first))
    throw new ImpossibleEvent(event, "a request starts with one sequence that is new");
  const next = withRequest(state, { ...request, status: "running", sequences: [first] });
  return withSequence(next, { sequence: first, request: event.request, table: [], outputs: [], texts: [], finish: "", cpu_table: [] });
}

/** @param {ArenaState} state @param {import("../types.js").SequenceForked} event */
export function forked(state, event) {
  const parent = sequenceIn(state, event, event.parent);
  // A beam that finds no memory any more ends as a hypothesis where it waits.
  const request = requestIn(state, event, parent.request, "running", "waiting", "swapped");
  if (find(state.sequences, sequenceNumber, event.sequence))
    throw new ImpossibleEvent(event, `sequence ${event.sequence} is here already`);
  if (within(state).dropped.includes(event.parent))
    throw new ImpossibleEvent(event, `sequence ${event.parent} was dropped and has a child`);
  const next = withRequest(state, { ...request, sequences: put(request.sequences, (n) => n, event.sequence) });
  return withSequence(next, { ...parent, sequence: event.sequence, table: [], finish: "", cpu_table: [] });
}

/** @param {ArenaState} state @param {import("../types.js").TokenGenerated} event */
export function tokenGenerated(state, event) {
  const owner = sequenceIn(state, event, event.sequence);
  const request = requestIn(state, event, owner.request, "running");
  if (owner.finish) throw new ImpossibleEvent(event, `sequence ${event.sequence} has ended (${owner.finish})`);
  if (owner.outputs.length >= request.max_tokens)
    throw new ImpossibleEvent(event, `it has ${owner.outputs.length} tokens, and the most is ${request.max_tokens}`);
  const known = request.prompt_tokens + owner.outputs.length;
  const written = owner.table.reduce((sum, n) => sum + (find(state.blocks, blockNumber, n)?.tokens.length ?? 0), 0);
  // A region that a fork was given is filled by a copy in the next step.
  const filledLater = state.manager !== "paged" && written === 0;
  if (owner.table.length && written !== known && !filledLater)
    throw new ImpossibleEvent(event, `${written} slots are written of its ${known} tokens`);
  const next = withSequence(state, { ...owner, outputs: [...owner.outputs, event.token], texts: [...owner.texts, event.text] });
  return owner.table.length ? next : noting(next, { bare: [...within(state).bare, event.sequence] });
}

/** @param {ArenaState} state @param {import("../types.js").SequenceFinished} event */
export function sequenceFinished(state, event) {
  const owner = sequenceIn(state, event, event.sequence);
  // A hypothesis of beam search has ended, and is dropped when a better one takes its place.
  const again = owner.finish && (event.reason !== "dropped" || owner.finish === "dropped");
  if (again || !event.reason) throw new ImpossibleEvent(event, `sequence ${event.sequence} has ended with "${owner.finish}"`);
  if (event.output_tokens !== owner.outputs.length)
    throw new ImpossibleEvent(event, `sequence ${event.sequence} has ${owner.outputs.length} tokens`);
  const next = withSequence(state, { ...owner, finish: event.reason });
  return event.reason === "dropped" ? noting(next, { dropped: [...within(state).dropped, event.sequence] }) : next;
}

/** @param {ArenaState} state @param {import("../types.js").RequestFinished} event */
export function requestFinished(state, event) {
  const request = requestIn(state, event, event.request, "running", "waiting", "swapped");
  const remaining = request.sequences.filter((n) => !within(state).dropped.includes(n));
  const outputs = remaining.reduce((sum, n) => sum + (find(state.sequences, sequenceNumber, n)?.outputs.length ?? 0), 0);
  if (outputs !== event.output_tokens)
    throw new ImpossibleEvent(event, `request ${event.request} has ${outputs} tokens in ${shown(remaining)}`);
  const going = live(state, request).map(sequenceNumber);
  if (going.length) throw new ImpossibleEvent(event, `its sequences ${shown(going)} go on`);
  return leaveTheCpu(withRequest(state, { ...request, status: "finished", reason: event.reason }), request);
}

/** @param {ArenaState} state @param {import("../types.js").RequestAborted} event */
export function requestAborted(state, event) {
  const request = requestIn(state, event, event.request);
  if (request.status !== "finished" || request.reason !== "registered")
    requestIn(state, event, event.request, "running", "waiting", "swapped");
  return leaveTheCpu(withRequest(state, { ...request, status: "aborted", reason: event.reason }), request);
}

/** @param {ArenaState} state @param {RequestState} request @returns {ArenaState} */
function leaveTheCpu(state, request) {
  if (request.status !== "swapped") return state;
  const mine = new Set(state.sequences.filter((s) => s.request === request.request).flatMap((s) => s.cpu_table));
  return {
    ...state,
    cpu_blocks: state.cpu_blocks.filter((b) => !mine.has(b.block)),
    sequences: state.sequences.map((s) => (s.request === request.request && s.cpu_table.length ? { ...s, cpu_table: [] } : s)),
  };
}

/** @param {ArenaState} state @param {import("../types.js").Preempted} event */
export function preempted(state, event) {
  beforeTheForwardPass(state, event);
  if (event.mode !== "recompute" && event.mode !== "swap") throw new ImpossibleEvent(event, "the mode is neither recompute nor swap");
  const request = requestIn(state, event, event.request, "running");
  allTogether(state, event, request, event.sequences);
  return withRequest(state, { ...request, status: event.mode === "swap" ? "swapped" : "waiting" });
}

/** @param {ArenaState} state @param {import("../types.js").StepCompleted} event */
export function stepCompleted(state, event) {
  const { ran, rows } = within(state);
  if (event.step !== state.step + 1) throw new ImpossibleEvent(event, `step ${event.step} after step ${state.step}`);
  if (event.batch !== ran.length || event.tokens !== rows)
    throw new ImpossibleEvent(event, `${rows} rows of ${ran.length} sequences were written`);
  const waiting = state.requests.filter((r) => r.status === "waiting").length;
  const swapped = state.requests.filter((r) => r.status === "swapped").length;
  if (event.waiting !== waiting || event.swapped !== swapped)
    throw new ImpossibleEvent(event, `by status ${waiting} wait and ${swapped} are swapped out`);
  checkPartition(state, event, event.partition);
  return noting({ ...state, step: event.step, partition: { ...event.partition } }, { stepped: true });
}
