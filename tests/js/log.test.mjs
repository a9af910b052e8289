import assert from "node:assert/strict";
import test from "node:test";
import { EventLog } from "../../static/js/core/log.js";
import { parseRecording } from "../../static/js/core/recording.js";
import { EMPTY, STEPS, arrive, requestState, snapshot, step } from "./sample.mjs";

function filled() {
  const log = new EventLog(snapshot());
  for (const item of STEPS) assert.equal(log.append(item), "added");
  return log;
}

test("a position is the number of events that have happened", () => {
  const log = filled();
  assert.equal(log.end, 17);
  assert.deepEqual(log.stateAt(0), EMPTY);
  assert.deepEqual(log.stateAt(1).requests.map((r) => r.status), ["waiting"]);
  assert.deepEqual(log.stateAt(3).sequences[0].table, [3]);
  assert.deepEqual(log.stateAt(17), log.head);
});

test("any order of visits gives the same states", () => {
  const log = filled();
  const forward = Array.from({ length: 18 }, (_, p) => log.stateAt(p));
  const other = filled();
  for (const p of [17, 3, 9, 2, 15, 8, 8, 0, 12]) assert.deepEqual(other.stateAt(p), forward[p], `position ${p}`);
});

test("positions outside are clamped, and have the nearest state", () => {
  const log = filled();
  assert.deepEqual(log.stateAt(-5), EMPTY);
  assert.deepEqual(log.stateAt(99), log.head);
  assert.deepEqual([log.clamp(-1), log.clamp(3.4), log.clamp(99)], [0, 3, 17]);
});

test("the pause of an envelope shows at its end and not before", () => {
  const log = filled();
  assert.deepEqual([log.stateAt(7).paused, log.stateAt(8).paused], [false, true]);
});

test("steps are found from any event of theirs", () => {
  const log = filled();
  assert.deepEqual([log.nextBoundary(0), log.nextBoundary(1), log.nextBoundary(5), log.nextBoundary(8), log.nextBoundary(17)], [1, 8, 8, 17, 17]);
  assert.deepEqual([log.previousBoundary(17), log.previousBoundary(9), log.previousBoundary(8), log.previousBoundary(1), log.previousBoundary(0)], [8, 8, 1, 0, 0]);
});

test("what is missing or here already is said, and changes nothing", () => {
  const log = filled();
  const head = log.head;
  assert.equal(log.append(step(7, [arrive(1)])), "gap");
  assert.equal(log.append(step(4, [arrive(1)])), "old");
  assert.equal(log.append({ ...step(5, []), epoch: 1 }), "gap");
  assert.equal(log.head, head);
  assert.equal(log.end, 17);
});

test("an impossible envelope throws and is not kept", () => {
  const log = filled();
  assert.throws(() => log.append(step(5, [arrive(1), arrive(1)])), /request 1 has arrived already/);
  assert.deepEqual([log.end, log.seq], [17, 4]);
  assert.equal(log.append(step(5, [arrive(1)])), "added");
});

test("the log is bounded, and what is left is still right", () => {
  const log = new EventLog(snapshot(), 200);
  for (let n = 0; n < 1000; n += 1)
    log.append(step(n + 1, [arrive(n), { type: "request_aborted", request: n, reason: "test" }]));
  assert.equal(log.end, 2000);
  assert.ok(log.events.length <= 250 + 64, `${log.events.length} events kept`);
  assert.ok(log.first >= 1686 && log.first <= 1800, `first is ${log.first}`);
  assert.ok(log.frames.length < 10 && log.marks.length <= 160);
  const state = log.stateAt(1901);
  assert.deepEqual(state.requests.at(-1), requestState(950, "waiting"));
  assert.deepEqual(log.stateAt(0), log.stateAt(log.first));
  assert.equal(log.markAt(1901).seq, 951);
});

test("an event is found after a position", () => {
  const log = filled();
  const allocated = (e) => e.type === "block_allocated";
  assert.deepEqual([log.find(0, allocated), log.find(3, allocated), log.find(4, allocated)], [3, 4, -1]);
  assert.equal(log.eventAt(3).block, 3);
  assert.equal(log.eventAt(3, 1).block, 1);
  assert.equal(log.eventAt(0), undefined);
});

const HEADER = { format: "paged-trace", v: 1, label: "test", model: { name: "none" }, recorded: "2026-01-01" };
const lines = (...items) => items.map((item) => JSON.stringify(item)).join("\n");

const closing = (steps) => {
  const log = filled();
  return snapshot(log.head, steps);
};

test("a recording is read, with a blank last line or without", () => {
  for (const end of ["", "\n"]) {
    const { header, log } = parseRecording(`${lines(HEADER, snapshot(), ...STEPS, closing(4))}${end}`);
    assert.equal(header.label, "test");
    assert.equal(log.end, 17);
  }
});

test("a broken recording names its line", () => {
  assert.throws(() => parseRecording(""), /line 1 must say format/);
  assert.throws(() => parseRecording(lines({ ...HEADER, v: 2 }, snapshot())), /line 1 .* v 2/);
  assert.throws(() => parseRecording(lines(HEADER, STEPS[0])), /line 2/);
  assert.throws(() => parseRecording(lines(HEADER, snapshot(), STEPS[1], STEPS[2])), /line 3 .* must be step 1/);
  assert.throws(() => parseRecording(`${lines(HEADER, snapshot())}\n{`), /line 3 .* no JSON/);
});

test("a recording that was cut short, or that leads elsewhere, is refused", () => {
  assert.throws(() => parseRecording(lines(HEADER, snapshot(), ...STEPS)), /line 6 .* closing snapshot, of step 3: it was cut short/);
  assert.throws(() => parseRecording(lines(HEADER, snapshot())), /line 2 .* closing snapshot, of step 0/);
  assert.throws(() => parseRecording(lines(HEADER, snapshot(), ...STEPS, closing(3))), /line 7 .* of step 4/);
  const other = { ...closing(4), state: { ...closing(4).state, step: 9 } };
  assert.throws(() => parseRecording(lines(HEADER, snapshot(), ...STEPS, other)), /do not lead to its closing snapshot in line 7/);
});
