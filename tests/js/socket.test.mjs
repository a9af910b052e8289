import assert from "node:assert/strict";
import test from "node:test";
import { ArenaSocket, backoff } from "../../static/js/core/socket.js";

const FULL = { v: 1, kind: "error", ref: null, arena: null, code: "too_many_sockets", field: "", message: "2 sockets are open" };
const READY = { v: 1, kind: "status", state: "ready", model: null };

/** A browser of timers that wait to be fired and of sockets that say what the test lets them say. */
function browser() {
  const timers = new Map();
  const sockets = [];
  class Fake {
    static OPEN = 1;
    constructor() {
      this.readyState = 0;
      this.sent = [];
      sockets.push(this);
    }
    send(text) { this.sent.push(JSON.parse(text)); }
    close() {}
    opened() { this.readyState = 1; this.onopen(); }
    says(message) { this.onmessage({ data: JSON.stringify(message) }); }
    ends() { this.readyState = 3; this.onclose(); }
  }
  let count = 0;
  globalThis.WebSocket = Fake;
  globalThis.window = { addEventListener() {}, setTimeout(run, ms) { timers.set(++count, { run, ms }); return count; } };
  globalThis.document = { hidden: false, addEventListener() {} };
  globalThis.clearTimeout = (id) => timers.delete(id);
  const socket = new ArenaSocket("ws://test");
  const heard = [];
  for (const name of ["up", "down"]) socket.addEventListener(name, () => heard.push(name));
  /** Fires the wait for the next attempt, and gives its milliseconds. */
  const again = () => {
    const { run, ms } = timers.get(socket.retry);
    timers.delete(socket.retry);
    run();
    return ms;
  };
  /** One attempt at a server with no room. */
  const turnedAway = () => {
    const ws = sockets.at(-1);
    ws.opened();
    ws.says(FULL);
    ws.ends();
  };
  return { socket, sockets, heard, again, turnedAway };
}

test("a full server is asked ever more rarely, at most every half minute, and never counts as connected", () => {
  const { socket, heard, again, turnedAway } = browser();
  socket.connect();
  const waits = [];
  for (let i = 0; i < 8; i += 1) {
    turnedAway();
    assert.deepEqual([socket.up, socket.crowded], [false, true]);
    waits.push(again());
  }
  assert.deepEqual(heard, ["down"]);
  [2000, 4000, 8000, 16000, 24000, 24000, 24000, 24000].forEach((mean, i) =>
    assert.ok(waits[i] >= mean * 0.75 && waits[i] <= mean * 1.25, `wait ${i}: ${waits[i]} ms for ${mean}`));
  assert.equal(backoff(99, true, 1), 30000);
});

test("once there is room, the first message is the connection, and a later loss is tried at once", () => {
  const { socket, sockets, heard, again, turnedAway } = browser();
  socket.connect();
  turnedAway();
  again();
  sockets.at(-1).opened();
  assert.equal(socket.up, false);
  sockets.at(-1).says(READY);
  assert.deepEqual([socket.up, socket.crowded, heard], [true, false, ["down", "up"]]);
  sockets.at(-1).ends();
  assert.ok(again() <= 375);
});

test("a full server that then falls silent is no longer said to be full", () => {
  const { socket, sockets, heard, again, turnedAway } = browser();
  socket.connect();
  turnedAway();
  again();
  sockets.at(-1).ends();
  assert.deepEqual([socket.crowded, heard], [false, ["down", "down"]]);
});

test("coming back to the page does not hurry a full server", () => {
  const { sockets, turnedAway } = browser();
  const seen = {};
  globalThis.document.addEventListener = (name, run) => (seen[name] = run);
  const other = new ArenaSocket("ws://test");
  other.connect();
  turnedAway();
  const before = sockets.length;
  seen.visibilitychange();
  assert.equal(sockets.length, before);
});
