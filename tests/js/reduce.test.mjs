import assert from "node:assert/strict";
import test from "node:test";
import { ImpossibleEvent, KEPT, applyEnvelope, applyEvent, checkOrder, count, endEnvelope } from "../../static/js/core/reduce.js";
import { EMPTY, STEPS, arrive, blockState, done, part, requestState, sequenceState, step } from "./sample.mjs";

const after = (count) => STEPS.slice(0, count).reduce(applyEnvelope, EMPTY);

const REQUEST = { prompt_tokens: 3, max_tokens: 2, sequences: [0] };

test("a prompt is read: the exact state", () => {
  assert.deepEqual(after(2), {
    ...EMPTY,
    step: 1,
    requests: [requestState(0, "running", REQUEST)],
    sequences: [sequenceState(0, 0, { table: [3, 1], outputs: [13], texts: [" on"] })],
    blocks: [blockState(1, 1, [12], [" sat"]), blockState(3, 1, [10, 11], ["The", " cat"])],
    partition: part(3, 1, 4),
  });
});

test("an envelope without events carries the pause alone", () => {
  assert.deepEqual(after(3), { ...after(2), paused: true });
});

test("a request ends: its text stays, its blocks are gone", () => {
  assert.deepEqual(after(4), {
    ...EMPTY,
    step: 2,
    paused: true,
    requests: [requestState(0, "finished", { ...REQUEST, reason: "length" })],
    sequences: [sequenceState(0, 0, { outputs: [13, 14], texts: [" on", " it"], finish: "length" })],
  });
});

test("the reducer is pure: a state is never changed in place", () => {
  const before = after(2);
  const copy = structuredClone(before);
  applyEnvelope(before, STEPS[3]);
  assert.deepEqual(before, copy);
});

test("sharing counts references, and a shared slot counts once", () => {
  let state = applyEvent(after(2), arrive(1, 3));
  state = applyEvent(state, { type: "request_admitted", request: 1, sequences: [1] });
  state = applyEvent(state, { type: "block_shared", block: 3, sequence: 1, logical: 0, refs: 2 });
  assert.equal(state.blocks.find((b) => b.block === 3).refs, 2);
  assert.deepEqual(state.sequences.map((s) => s.table), [[3, 1], [3]]);
  assert.deepEqual(count(state), { written: 3, empty: 1, free: 4 });
  state = applyEvent(state, { type: "request_aborted", request: 0, reason: "enough" });
  state = applyEvent(state, { type: "block_released", block: 3, sequence: 0, refs: 1 });
  assert.deepEqual(state.sequences.map((s) => s.table), [[1], [3]]);
});

test("what an envelope still owes is in the state until its end, and not after it", () => {
  const begun = applyEvent(after(2), STEPS[3].events[0]);
  assert.deepEqual([begun.within.ran, begun.within.rows], [[0], 1]);
  assert.equal("within" in after(4), false);
});

test("a preempted request waits, keeps what it has said, and can be admitted again", () => {
  let state = applyEvent(after(2), { type: "preempted", request: 0, sequences: [0], mode: "recompute" });
  for (const block of [1, 3]) {
    state = applyEvent(state, { type: "block_released", block, sequence: 0, refs: 0 });
    state = applyEvent(state, { type: "block_freed", block });
  }
  assert.equal(state.requests[0].status, "waiting");
  assert.deepEqual(state.sequences[0], sequenceState(0, 0, { outputs: [13], texts: [" on"] }));
  state = applyEvent(state, { type: "request_admitted", request: 0, sequences: [0] });
  assert.deepEqual([state.requests[0].status, state.sequences[0].outputs], ["running", [13]]);
});

test("only the last ended requests are kept, those that run always", () => {
  let state = EMPTY;
  for (let n = 0; n < KEPT + 3; n += 1) {
    state = applyEvent(state, arrive(n));
    if (n !== 0) state = applyEvent(state, { type: "request_aborted", request: n, reason: "enough" });
  }
  state = endEnvelope(state, { paused: false, partition: state.partition });
  assert.equal(state.requests.length, KEPT + 1);
  assert.deepEqual(state.requests.slice(0, 2).map((r) => r.request), [0, 3]);
});

const write = (block, first, tokens) => ({
  type: "slots_written", block, first, count: tokens.length, tokens, texts: tokens.map(String),
});

/** That every rule is kept is shown by test_reducers_agree.py, with the same envelopes for Python and for this reducer. */
const IMPOSSIBLE = [
  ["a block that is in use", { type: "block_allocated", block: 3, sequence: 0, logical: 2 }, /block 3 is in use/],
  ["a block past the last", { type: "block_allocated", block: 4, sequence: 0, logical: 2 }, /blocks are numbered 0 to 3/],
  ["a gap in the table", { type: "block_allocated", block: 0, sequence: 0, logical: 3 }, /has 2 lines/],
  ["a sequence that is not there", { type: "block_allocated", block: 0, sequence: 9, logical: 0 }, /no sequence 9/],
  ["a write past the block's end", write(1, 1, [1, 2]), /block 1 ends at slot 1/],
  ["a write over a written slot", write(1, 0, [1]), /next slot of block 1 is 1/],
  ["a write into a free block", write(0, 0, [1]), /block 0 is free/],
  ["a write whose count is wrong", { ...write(1, 1, [1]), count: 2 }, /count 2/],
  ["letting go of what is not held", { type: "block_released", block: 0, sequence: 0, refs: 0 }, /block 0 is free/],
  ["letting go of what is needed", { type: "block_released", block: 1, sequence: 0, refs: 0 }, /sequence 0 goes on/],
  ["a wrong count of references", { type: "block_released", block: 3, sequence: 0, refs: 1 }, /so now 0/],
  ["freeing what is still held", { type: "block_freed", block: 3 }, /1 references left/],
  ["freeing twice", { type: "block_freed", block: 0 }, /block 0 is free/],
  ["a request that arrives twice", arrive(0), /request 0 has arrived already/],
  ["a request that is admitted twice", { type: "request_admitted", request: 0, sequences: [0] }, /is running, and must be waiting/],
  ["an end of nothing", { type: "request_finished", request: 5, reason: "stop", output_tokens: 1 }, /no request 5/],
  ["a region in paged memory", { type: "region_reserved", request: 0, start: 0, size: 4, needed: 4 }, /manager paged does no such thing/],
  ["a partition that the blocks do not bear out", done(2, 0, 0, part(4, 0, 4)), /3 slots are written/],
  ["an event of a later version", { type: "block_teleported", block: 1 }, /no reducer knows/],
  ["an event of no version", { type: "toString" }, /no reducer knows/],
];

for (const [name, event, message] of IMPOSSIBLE)
  test(`impossible: ${name}`, () => {
    assert.throws(() => applyEvent(after(2), event), (why) => {
      assert.ok(why instanceof ImpossibleEvent);
      assert.match(why.message, message);
      assert.ok(why.message.includes(event.type), "the message names the event");
      return true;
    });
  });

test("impossible: writing into a shared block", () => {
  let state = applyEvent(after(2), arrive(1, 3));
  state = applyEvent(state, { type: "request_admitted", request: 1, sequences: [1] });
  state = applyEvent(state, { type: "block_shared", block: 1, sequence: 1, logical: 0, refs: 2 });
  assert.throws(() => applyEvent(state, write(1, 1, [1])), /shared by 2/);
});

test("an envelope that leaves memory in disorder is named as such", () => {
  assert.throws(() => applyEnvelope(after(2), step(3, [write(1, 1, [13])], false, part(4, 0, 4))), (why) => {
    assert.ok(why instanceof ImpossibleEvent);
    assert.equal(why.event, null);
    assert.match(why.message, /impossible end of an envelope: 1 slots were written and no step completed/);
    return true;
  });
});

test("a state in disorder is told from one in order", () => {
  checkOrder(after(2));
  assert.throws(() => checkOrder({ ...after(2), blocks: after(2).blocks.slice(1) }), /tables name \[1\], which are free/);
});

test("a bad envelope leaves the state that was before it", () => {
  const before = after(2);
  assert.throws(() => applyEnvelope(before, step(3, [write(1, 1, [7]), write(1, 1, [8])])), ImpossibleEvent);
  assert.deepEqual(before, after(2));
});
