// @ts-check
/** What the cells mean. */
import { el, svg, uid } from "../../core/dom.js";

/** @returns {HTMLElement} */
export function legend() {
  const dots = uid("dots");
  const swatch = (/** @type {string} */ owner, /** @type {string} */ kind, /** @type {string} */ fill) =>
    svg("svg", { class: "memory", viewBox: "0 0 16 11", "aria-hidden": "true" },
      svg("pattern", { id: dots, class: "dots", width: 5, height: 5, patternUnits: "userSpaceOnUse" }, svg("circle", { cx: 2.5, cy: 2.5, r: 0.8 })),
      svg("g", { class: owner }, svg("rect", { class: `slot ${kind}`, x: 0.5, y: 0.5, width: 15, height: 10, fill })));
  const item = (/** @type {Element} */ sample, /** @type {string} */ words) => el("li", {}, sample, words);
  return el("ul", { class: "legend" },
    item(swatch("", "", "none"), "free"),
    item(swatch("owned", "full", "none"), "written"),
    item(swatch("owned", "full fresh", "none"), "written last"),
    item(swatch("owned", "", `url(#${dots})`), "held, empty"),
    item(swatch("owned", "pending", "none"), "picked, not yet written"));
}
