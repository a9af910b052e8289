import assert from "node:assert/strict";
import test from "node:test";
import { EventLog } from "../../static/js/core/log.js";
import { STEP_MS, Transport } from "../../static/js/core/transport.js";
import { STEPS, snapshot, step } from "./sample.mjs";

/** An engine that notes what it is told. */
function engine(state = {}) {
  const told = [];
  const drive = {
    told, isRunning: false, isIdle: false, ...state,
    ready: () => true,
    running: () => drive.isRunning,
    idle: () => drive.isIdle,
    resume: () => (told.push("resume"), (drive.isRunning = true)),
    pause: () => (told.push("pause"), (drive.isRunning = false)),
    step: () => told.push("step"),
    pace: (ms) => told.push(ms),
  };
  return drive;
}

function ready(drive, steps = STEPS) {
  const log = new EventLog(snapshot());
  for (const item of steps) log.append(item);
  const transport = new Transport(log, drive, () => {});
  const come = (item) => {
    const before = log.end;
    log.append(item);
    transport.appended(before);
  };
  return { log, transport, come };
}

test("the playhead never leaves the log", () => {
  const { transport } = ready(null);
  transport.seek(-3);
  assert.equal(transport.position, 0);
  transport.stepBack();
  assert.equal(transport.position, 0);
  transport.seek(99);
  assert.equal(transport.position, 17);
  transport.stepOn();
  assert.equal(transport.position, 17);
});

test("a recording plays an envelope's events over one step's time, then stops", () => {
  const { transport } = ready(null);
  transport.play();
  assert.equal(transport.position, 0, "play at the end starts over");
  assert.equal(transport.tick(STEP_MS - 1), true);
  assert.equal(transport.position, 0);
  transport.tick(1);
  assert.equal(transport.position, 1);
  transport.tick(STEP_MS / 7 + 0.01);
  assert.equal(transport.position, 2);
  transport.tick(10 * STEP_MS);
  assert.equal(transport.position, 17);
  transport.tick(16);
  assert.equal(transport.playing, false);
});

test("twice the speed takes half the time, and tells the engine", () => {
  const drive = engine();
  const { transport } = ready(drive);
  transport.seek(0);
  transport.setSpeed(2);
  transport.play();
  transport.tick(STEP_MS / 2);
  assert.equal(transport.position, 1);
  assert.deepEqual(drive.told, [STEP_MS / 2]);
});

test("at the live end play resumes the engine and pause pauses it", () => {
  const drive = engine();
  const { transport } = ready(drive);
  transport.play();
  assert.deepEqual(drive.told, ["resume"]);
  assert.equal(transport.tick(16), false, "nothing to draw until something comes");
  transport.pause();
  assert.deepEqual(drive.told, ["resume", "pause"]);
});

test("play in the past replays, and resumes the engine only where the past ends", () => {
  const drive = engine();
  const { transport } = ready(drive);
  transport.seek(8);
  transport.play();
  assert.deepEqual(drive.told, []);
  transport.tick(STEP_MS + 0.01);
  assert.equal(transport.position, 17);
  transport.tick(16);
  assert.deepEqual(drive.told, ["resume"]);
});

test("a step at the live end asks the engine and shows one event of the answer", () => {
  const drive = engine();
  const { transport, come, log } = ready(drive, STEPS.slice(0, 1));
  transport.stepOn();
  transport.stepOn();
  assert.deepEqual(drive.told, ["step"], "asked once, however often it is pressed");
  come(STEPS[1]);
  assert.deepEqual([transport.position, log.end], [2, 8]);
  transport.stepOn();
  assert.equal(transport.position, 3);
  assert.deepEqual(drive.told, ["step"]);
});

test("what comes while paused at the end is shown; in the past the playhead stays", () => {
  const { transport, come } = ready(engine(), STEPS.slice(0, 1));
  come(STEPS[1]);
  assert.equal(transport.position, 8);
  transport.seek(4);
  come(STEPS[2]);
  come(STEPS[3]);
  assert.equal(transport.position, 4);
  transport.goLive();
  assert.equal(transport.position, 17);
});

test("scrubbing back while the engine runs holds the playhead and not the engine", () => {
  const drive = engine({ isRunning: true });
  const { transport, come } = ready(drive, STEPS.slice(0, 2));
  transport.goLive();
  assert.equal(transport.playing, true);
  transport.seek(3);
  come(STEPS[2]);
  assert.deepEqual([transport.position, transport.playing, drive.told], [3, false, []]);
});

test("whole steps on and back", () => {
  const { transport } = ready(null);
  transport.seek(4);
  transport.seekStep(1);
  assert.equal(transport.position, 8);
  transport.seekStep(-1);
  assert.equal(transport.position, 1);
});

test("an event that has not happened yet is run for, step by step", () => {
  const drive = engine();
  const { transport, come } = ready(drive, STEPS.slice(0, 1));
  assert.equal(transport.seekEvent((e) => e.type === "request_finished"), true);
  come(STEPS[1]);
  come(STEPS[2]);
  come(STEPS[3]);
  assert.deepEqual([transport.position, transport.wanted], [12, null]);
  assert.deepEqual(drive.told, ["step", "step"], "the envelope without events is no answer");
});

test("an event that can never happen is not looked for", () => {
  const { transport } = ready(null);
  assert.equal(transport.seekEvent((e) => e.type === "preempted"), false);
  assert.equal(transport.position, 17);
});

test("after a time unseen the state is shown as it is, without a queue", () => {
  const drive = engine({ isRunning: true });
  const { transport, come } = ready(drive, STEPS.slice(0, 1));
  transport.goLive();
  come(STEPS[1]);
  come(STEPS[2]);
  assert.equal(transport.position, 1);
  transport.catchUp();
  assert.equal(transport.position, 8);
});

test("another log in the same place keeps the playhead within it", () => {
  const { transport } = ready(null);
  transport.replaceLog(new EventLog(snapshot()));
  assert.equal(transport.position, 0);
  transport.replaceLog(new EventLog(snapshot()), 50);
  assert.equal(transport.position, 0);
});

test("an envelope without events moves nothing", () => {
  const { transport, come } = ready(engine(), STEPS.slice(0, 2));
  transport.stepOn();
  come(step(3, [], true, STEPS[2].partition));
  assert.deepEqual([transport.position, transport.awaiting], [8, true]);
});

test("once everything is over, playing begins at home, at its own pace however far behind", () => {
  const drive = engine({ isRunning: true, isIdle: true });
  const { transport } = ready(drive);
  transport.home = () => 8;
  transport.play();
  assert.equal(transport.position, 8);
  transport.tick(STEP_MS * 0.9);
  assert.equal(transport.position < 17, true);
  assert.deepEqual(drive.told, []);
});

test("playback that has come to rest goes on when a request comes; a paused one only shows it", () => {
  const drive = engine({ isRunning: true });
  const { transport, come } = ready(drive, STEPS.slice(0, 1));
  transport.goLive();
  drive.isIdle = true;
  transport.tick(16);
  assert.deepEqual([transport.playing, transport.rested], [false, true]);
  drive.isIdle = false;
  come(STEPS[1]);
  assert.deepEqual([transport.playing, transport.position], [true, 1]);
  transport.pause();
  transport.seek(8);
  come(STEPS[2]);
  come(STEPS[3]);
  assert.deepEqual([transport.playing, transport.position], [false, 17]);
});
