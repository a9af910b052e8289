import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import test from "node:test";
import { command } from "../../static/js/widgets/block-table/client.js";

/** What a shell makes of the command's words. */
function words(text) {
  const out = execFileSync("sh", ["-c", `curl() { printf '%s\\n' "$@"; }\n${text}`], { encoding: "utf8" });
  return out.trimEnd().split("\n");
}

test("the command is what a shell must see: the address, the memory's header, a body of JSON", () => {
  const [address, ...rest] = words(command("https://example.org:8000", "se-cr_et", "SmolLM2"));
  assert.equal(address, "https://example.org:8000/v1/completions");
  assert.deepEqual(rest.slice(0, 4), ["-H", "Content-Type: application/json", "-H", "X-Arena: se-cr_et"]);
  assert.deepEqual(JSON.parse(rest[5]), { model: "SmolLM2", prompt: "A page table maps", max_tokens: 24 });
});

test("a model's name with quotes in it stays one word", () => {
  const body = words(command("http://localhost", "x", `it's "odd" $(model)`)).at(-1);
  assert.equal(JSON.parse(body).model, `it's "odd" $(model)`);
});
