import assert from "node:assert/strict";
import test from "node:test";
import { Names } from "../../static/js/core/names.js";
import { describe, duration, sentence, short } from "../../static/js/core/words.js";
import { EMPTY, arrive, blockState, done, part, requestState, sequenceState } from "./sample.mjs";

test("a second and more is said in seconds with one decimal, less in whole milliseconds", () => {
  const said = [0.4, 215.2, 999.4, 999.5, 2215, 12040].map(duration);
  assert.deepEqual(said, ["0 ms", "215 ms", "999 ms", "1.0 s", "2.2 s", "12.0 s"]);
});

/** A has two sequences that share block 3, B waits, C is swapped out; block 2 is cached. */
const STATE = {
  ...EMPTY,
  requests: [
    requestState(0, "running", { sequences: [0, 1], width: 2, prompt_tokens: 2 }),
    requestState(1, "waiting"),
    requestState(2, "swapped", { sequences: [2] }),
  ],
  sequences: [
    sequenceState(0, 0, { table: [3, 0], outputs: [12, 13], texts: [" sat", " on"] }),
    sequenceState(1, 0, { table: [3, 1], outputs: [14, 15], texts: [" ran", " off"] }),
    sequenceState(2, 2, { outputs: [9], texts: ["x"], cpu_table: [0] }),
  ],
  blocks: [
    blockState(0, 1, [12], [" sat"]),
    blockState(1, 1, [14], [" ran"]),
    blockState(2, 0, [7, 8], ["7", "8"], { hash: "aa" }),
    blockState(3, 2, [10, 11], ["The", " cat"]),
  ],
};

const EVENTS = [
  [arrive(1, 3), "request_arrived B, 3 tokens", /Request B arrives with 3 tokens/],
  [{ type: "request_admitted", request: 0, sequences: [0] }, "request_admitted A", /lets A run/],
  [{ type: "request_refused", reason: "too long", source: "page" }, "request_refused ", /refused: too long/],
  [{ type: "sequence_forked", sequence: 1, parent: 0 }, "sequence_forked A 0 → 1", /A forks/],
  [{ type: "sequence_finished", sequence: 1, reason: "stop", output_tokens: 2 }, "sequence_finished A, stop", /The text of A, sequence 2 is complete: it has said its last word/],
  [{ type: "sequence_finished", sequence: 1, reason: "dropped", output_tokens: 2 }, "sequence_finished A, dropped", /without one of A’s/],
  [{ type: "request_finished", request: 0, reason: "registered", output_tokens: 0 }, "request_finished A, registered", /its blocks are kept/],
  [{ type: "request_aborted", request: 0, reason: "enough" }, "request_aborted A, enough", /A is given up: enough/],
  [{ type: "block_allocated", block: 0, sequence: 0, logical: 1 }, "block_allocated A[1] → 0", /becomes logical block 1 of A, sequence 1/],
  [{ type: "slots_written", block: 1, first: 0, count: 1, tokens: [14], texts: [" ran"] }, "slots_written 1[0] “ ran”", /slot 0 of block 1, logical block 1 of A/],
  [{ type: "block_shared", block: 3, sequence: 1, logical: 0, refs: 2 }, "block_shared A[0] → 3 ×2", /A, sequence 2 refers to block 3 too: 2 references/],
  [{ type: "prefix_hit", block: 3, sequence: 1, logical: 0, refs: 2, hash: "bb" }, "prefix_hit A[0] → 3 ×2", /Block 3 holds already what A, sequence 2 begins with/],
  [{ type: "block_released", block: 3, sequence: 1, refs: 1 }, "block_released A, 3 ×1", /lets go of block 3/],
  [{ type: "block_freed", block: 3 }, "block_freed 3", /block 3 any more/],
  [{ type: "block_copied", source: 3, destinations: [0, 1], count: 1 }, "block_copied 3[0] → 0, 1", /1 slot of block 3 is copied into blocks 0, 1/],
  [{ type: "block_cached", request: 0, blocks: [3], hashes: ["bb"], parent: "", tokens: [10, 11] }, "block_cached A 3", /1 full block of A/],
  [{ type: "block_evicted", block: 2, hash: "aa" }, "block_evicted 2", /kept in block 2 is given up/],
  [{ type: "region_reserved", request: 0, start: 8, size: 8, needed: 6 }, "region_reserved A [8–15]", /8 slots from slot 8 on are reserved for A, which asked for 6/],
  [{ type: "region_freed", request: 0, start: 8, size: 8 }, "region_freed A [8–15]", /8 slots from slot 8 on are free again/],
  [{ type: "reservation_failed", request: 1, needed: 6, regions: 2, largest_gap: 4, unallocated: 5 }, "reservation_failed B, 2 × 6", /2 regions of 6 slots cannot be had/],
  [{ type: "preempted", request: 0, sequences: [0, 1], mode: "recompute" }, "preempted A, recompute", /waits to be computed again/],
  [{ type: "preempted", request: 0, sequences: [0, 1], mode: "swap" }, "preempted A, swap", /main memory/],
  [{ type: "swapped_out", request: 2, pairs: [[3, 0]], bytes: 9 }, "swapped_out C 3 → 0", /C holds, 1 block, is copied to main memory/],
  [{ type: "swapped_in", request: 2, pairs: [[0, 3]], bytes: 9 }, "swapped_in C 0 → 3", /comes back from main memory/],
  [{ type: "token_generated", sequence: 2, token: 9, text: "x", logprob: 0 }, "token_generated C “x”", /picks “x” for C\./],
  [done(4, 2, 3, part(0, 0, 8)), "step_completed 4", /Step 4 is over: 2 sequences, 3 tokens, 2 ms/],
];

for (const [event, line, words] of EVENTS)
  test(`${event.type} in a line and in a sentence`, () => {
    const names = new Names();
    const { name, rest } = short(event, STATE);
    assert.equal(`${name} ${rest.map((part) => (typeof part === "string" ? part : names.letter(part.request))).join("")}`, line);
    assert.match(sentence(event, STATE, names), words);
  });

test("every event of the vocabulary has its words", () => {
  assert.equal(new Set(EVENTS.map(([event]) => event.type)).size, 24);
});

test("the figure as text names every sequence, what is shared and what is cached", () => {
  assert.deepEqual(describe(STATE, new Names()), [
    "Request A, sequence 1: 3 tokens in 2 blocks: 3, 0 (the last has 1 of 2 slots filled). It reads: The cat sat",
    "Request A, sequence 2: 3 tokens in 2 blocks: 3, 1 (the last has 1 of 2 slots filled). It reads: The cat ran",
    "Request B waits with 1 prompt token.",
    "Request C waits in main memory.",
    "Shared blocks: 3 (2 references).",
    "1 of 4 blocks are free, 1 of them cached.",
  ]);
});
