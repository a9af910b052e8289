// @ts-check
/** What a request is called and which hue it has, the same in prose and in every figure. Requests of the reader and
 * the scene are A, B, C ...; those that came and went before the scene opened are alpha, beta, gamma ... */

/** @typedef {import("./types.js").ArenaState} ArenaState */

const HUES = ["a", "b", "c", "d", "e", "f"];
const GREEK = "αβγδεζηθικλμνξοπρστυφχψω";

export class Names {
  /** Number of the first request that gets a Latin letter. */
  offset = 0;

  /** Learns which requests came before. @param {{request: number, source: string}} request */
  meet(request) {
    if (request.source === "earlier") this.offset = Math.max(this.offset, request.request + 1);
  }

  /** @param {ArenaState} state */
  meetAll(state) {
    for (const request of state.requests) this.meet(request);
  }

  /** A, B ... Z, A2, B2 ... @param {number} request @returns {string} */
  letter(request) {
    if (request < this.offset) return GREEK[request % GREEK.length];
    const n = request - this.offset;
    return String.fromCharCode(65 + (n % 26)) + (n < 26 ? "" : Math.floor(n / 26) + 1);
  }

  /** The class of the hue. @param {number} request @returns {string} */
  hue(request) {
    const n = request - this.offset;
    return `hue-${HUES[((n % HUES.length) + HUES.length) % HUES.length]}`;
  }
}

/** The request that a sequence belongs to, or -1. @param {ArenaState} state @param {number} sequence */
export function requestOf(state, sequence) {
  return state.sequences.find((s) => s.sequence === sequence)?.request ?? -1;
}

/** @typedef {{request: number, sequence: number, logical: number}} Owner */

/** Who refers to each block in use. @param {ArenaState} state @returns {Map<number, Owner[]>} */
export function owners(state) {
  /** @type {Map<number, Owner[]>} */
  const found = new Map();
  for (const { request, sequence, table } of state.sequences)
    table.forEach((block, logical) => {
      const list = found.get(block);
      if (list) list.push({ request, sequence, logical });
      else found.set(block, [{ request, sequence, logical }]);
    });
  return found;
}
