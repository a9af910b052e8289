import assert from "node:assert/strict";
import test from "node:test";
import { EventLog } from "../../static/js/core/log.js";
import { Session } from "../../static/js/core/session.js";
import { lines, look } from "../../static/js/widgets/block-table/view.js";
import { EMPTY, STEPS, blockState, part, requestState, sequenceState, snapshot, step } from "./sample.mjs";

const show = (log, focus) => look(new Session("recorded", log, null, () => {}), focus);

/** Two samples share block 3; each has a last block of its own, the second's is full. */
const SAMPLES = {
  ...EMPTY,
  requests: [requestState(0, "running", { sequences: [0, 1], width: 2, prompt_tokens: 2, max_tokens: 8 })],
  sequences: [
    sequenceState(0, 0, { table: [3, 0], outputs: [12, 13], texts: [" sat", " on"] }),
    sequenceState(1, 0, { table: [3, 1], outputs: [14, 15, 16], texts: [" ran", " off", " it"] }),
  ],
  blocks: [
    blockState(0, 1, [12], [" sat"]),
    blockState(1, 1, [14, 15], [" ran", " off"]),
    blockState(3, 2, [10, 11], ["The", " cat"]),
  ],
  partition: part(5, 1, 2),
};

test("a request with one sequence has its lines and no heading", () => {
  const log = new EventLog(snapshot());
  for (const item of STEPS.slice(0, 2)) log.append(item);
  assert.deepEqual(lines(show(log, 0)).map(({ heading, logical, row, ghost, text }) => [heading, logical, row?.block, row?.texts.length, ghost, text]), [
    ["", 0, 3, 2, -1, ""],
    ["", 1, 1, 1, 1, " on"],
  ]);
});

test("a request with several sequences shows the table of each, under a heading", () => {
  const view = show(new EventLog(snapshot(SAMPLES)), 0);
  assert.deepEqual(lines(view).map(({ heading, logical, row, ghost, text }) => [heading, logical, row?.block ?? null, ghost, text]), [
    ["sequence 1", -1, null, -1, ""],
    ["", 0, 3, -1, ""],
    ["", 1, 0, 1, " on"],
    ["sequence 2", -1, null, -1, ""],
    ["", 0, 3, -1, ""],
    ["", 1, 1, -1, ""],
    ["", 2, null, 0, " it"],
  ]);
  assert.deepEqual(view.owners.get(3), [{ request: 0, sequence: 0, logical: 0 }, { request: 0, sequence: 1, logical: 0 }]);
});

test("a sequence that has ended is not drawn, and keeps its sibling's name", () => {
  const sequences = [sequenceState(0, 0, { outputs: [12], texts: [" sat"], finish: "stop" }), SAMPLES.sequences[1]];
  const blocks = [SAMPLES.blocks[1], { ...SAMPLES.blocks[2], refs: 1 }];
  const view = show(new EventLog(snapshot({ ...SAMPLES, sequences, blocks, partition: part(4, 0, 4) })), 0);
  assert.deepEqual(lines(view).map((line) => line.heading || line.row?.block), ["sequence 2", 3, 1, undefined]);
  assert.equal(view.said, "sat\nran off it");
});

test("the block that an event fills is the one that is pointed at", () => {
  const log = new EventLog(snapshot(SAMPLES));
  log.append(step(1, [
    { type: "sequence_forked", sequence: 2, parent: 0 },
    { type: "block_shared", block: 3, sequence: 2, logical: 0, refs: 3 },
    { type: "block_shared", block: 0, sequence: 2, logical: 1, refs: 2 },
    { type: "block_allocated", block: 2, sequence: 0, logical: 1 },
    { type: "block_released", block: 0, sequence: 0, refs: 1 },
    { type: "block_copied", source: 0, destinations: [2], count: 1 },
  ], false, part(6, 2, 0)));
  const view = show(log, 0);
  assert.equal(view.currentBlock, 2);
  assert.deepEqual(lines(view).filter((line) => line.row).map((line) => line.row.block), [3, 2, 3, 1, 3, 0]);
});
