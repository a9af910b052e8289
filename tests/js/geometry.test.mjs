import assert from "node:assert/strict";
import test from "node:test";
import { corner, geometry, slotBox } from "../../static/js/widgets/block-table/geometry.js";

const SHAPES = [[4, 48], [8, 24], [16, 12], [32, 8]];

for (const width of [308, 350, 430, 704]) {
  test(`in ${width} pixels every shape is as tall as the others, and nothing leaves the drawing`, () => {
    const heights = SHAPES.map(([size, count]) => Math.round(geometry(size, count, width).height));
    assert.deepEqual(heights, heights.map(() => heights[0]));
    for (const [size, count] of SHAPES) {
      const g = geometry(size, count, width);
      const [x, y] = corner(g, count - 1);
      const last = slotBox(g, size - 1);
      assert.ok(x + last.x + last.width <= width, `${size}: right edge`);
      assert.ok(y + last.y + last.height <= Math.ceil(g.height), `${size}: lower edge`);
    }
  });
}

test("slots do not touch, and lie on whole pixels", () => {
  const g = geometry(32, 8, 431);
  const [first, second, below] = [slotBox(g, 0), slotBox(g, 1), slotBox(g, 8)];
  assert.equal(second.x - first.x - first.width, 2);
  assert.equal(below.y - first.y - first.height, 2);
  for (const value of [...Object.values(second), ...corner(g, 5)]) assert.equal(value, Math.round(value));
});
