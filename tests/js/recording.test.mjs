import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { StoredRecording } from "../../static/js/core/recording.js";

const TEXT = readFileSync(new URL("../../static/recordings/growing.jsonl", import.meta.url), "utf8");

/** A network that answers until it is cut. */
function network() {
  const asked = [];
  const net = { cut: false, asked };
  globalThis.fetch = async (url, { priority }) => {
    asked.push(priority);
    if (net.cut) throw new TypeError("Failed to fetch");
    return { ok: true, status: 200, text: async () => TEXT };
  };
  return net;
}

/** What was left for an idle moment. */
function idle() {
  const left = [];
  globalThis.requestIdleCallback = (run) => left.push(run);
  return async () => {
    for (const run of left.splice(0)) run();
    await new Promise((done) => setImmediate(done));
  };
}

test("what was kept in an idle moment opens when nothing can be fetched any more", async () => {
  const net = network();
  const rest = idle();
  const stored = new StoredRecording("/r.jsonl");
  stored.keep();
  stored.keep();
  assert.deepEqual(net.asked, []);
  await rest();
  assert.deepEqual(net.asked, ["low"]);
  net.cut = true;
  const { header, log } = await stored.open();
  assert.equal(header.format, "paged-trace");
  assert.ok(log.end > 0);
  assert.deepEqual(net.asked, ["low"]);
});

test("a failure is said in words, and the next try asks again", async () => {
  const net = network();
  const rest = idle();
  const stored = new StoredRecording("/r.jsonl");
  net.cut = true;
  stored.keep();
  await rest();
  assert.equal(stored.planned, false);
  await assert.rejects(stored.open(), /the recording could not be fetched/);
  net.cut = false;
  assert.ok((await stored.open()).log.end > 0);
});
