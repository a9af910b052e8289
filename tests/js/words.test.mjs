import assert from "node:assert/strict";
import test from "node:test";
import { duration } from "../../static/js/core/words.js";

test("a second and more is said in seconds with one decimal, less in whole milliseconds", () => {
  const said = [0.4, 215.2, 999.4, 999.5, 2215, 12040].map(duration);
  assert.deepEqual(said, ["0 ms", "215 ms", "999 ms", "1.0 s", "2.2 s", "12.0 s"]);
});
