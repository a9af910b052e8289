import assert from "node:assert/strict";
import test from "node:test";
import { sourceLabel } from "../../static/js/widgets/block-table/label.js";

const MODEL = { name: "M", dtype: "float32", attention: "cpu: native kernels", label: "" };
const FACTS = {
  up: true, crowded: false, attached: false, lost: false, queue: 0, closed: "", refusal: "", note: "", missing: "", restarted: false,
  shown: false, status: { kind: "status", v: 1, state: "ready", model: MODEL }, recorded: null,
};
const RECORDED = { format: "paged-trace", v: 1, label: "", model: { ...MODEL, name: "R" }, recorded: "2026-01-02" };
const label = (facts) => sourceLabel({ ...FACTS, ...facts });

test("live: the model, and what there is to remark", () => {
  const live = label({ attached: true, shown: true, restarted: true });
  assert.deepEqual(live, { kind: "live", title: "live:", words: "M, float32, native kernels; the engine was started again", progress: null, action: "" });
});

test("a recording is dated, names its own model, and says why it is shown", () => {
  const said = label({ up: false, lost: true, shown: true, recorded: RECORDED });
  assert.equal(said.kind, "recorded");
  assert.equal(`${said.title} ${said.words}`, "recorded on 2026-01-02: R, float32, native kernels; no server answers");
});

test("a crowded server is not said to be silent, however long it has been", () => {
  const { words } = label({ up: false, crowded: true, lost: true });
  assert.equal(words, "the server has too many readers at the moment; this page asks again by itself");
});

test("a refused memory is explained in the server's words", () => {
  const { kind, words } = label({ refusal: "192 slots; an arena has at most 128.", shown: true, recorded: RECORDED });
  assert.equal(kind, "recorded");
  assert.match(words, /opens no memory for this figure: 192 slots; an arena has at most 128\.$/);
});

test("why there is no recording is said too", () => {
  assert.equal(label({ up: false, lost: true, missing: "the recording could not be fetched" }).words,
    "no server answers (the recording could not be fetched)");
});
