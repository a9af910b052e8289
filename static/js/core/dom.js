// @ts-check
/** Building elements without markup: whatever a token or a prompt holds, it is text. */

const SVG = "http://www.w3.org/2000/svg";

/** @param {Element} node @param {Record<string, unknown>} attributes */
export function set(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) node.removeAttribute(name);
    else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value === true ? "" : String(value));
  }
}

/**
 * @template {keyof HTMLElementTagNameMap} K @param {K} tag @param {Record<string, unknown>} [attributes]
 * @param {...(Node | string)} children @returns {HTMLElementTagNameMap[K]}
 */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  set(node, attributes);
  node.append(...children);
  return node;
}

/**
 * @template {keyof SVGElementTagNameMap} K @param {K} tag @param {Record<string, unknown>} [attributes]
 * @param {...(Node | string)} children @returns {SVGElementTagNameMap[K]}
 */
export function svg(tag, attributes = {}, ...children) {
  const node = /** @type {SVGElementTagNameMap[K]} */ (document.createElementNS(SVG, tag));
  set(node, attributes);
  node.append(...children);
  return node;
}

/** Changes a text only when it differs, so that nothing is laid out for nothing. @param {Node} node @param {string} text */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

let count = 0;

/** An id that no other element of the page has. @param {string} stem */
export function uid(stem) {
  count += 1;
  return `${stem}-${count}`;
}
