/** A small log written by hand: one request over four blocks of two slots. */

export const part = (token_states, held, free, cached = 0) =>
  ({ token_states, held, reserved: 0, internal: 0, external: 0, free, cached });

export const PARTITION = part(0, 0, 8);

export const EMPTY = {
  manager: "paged", block_size: 2, num_blocks: 4, step: 0, paused: false, requests: [], sequences: [], blocks: [],
  partition: PARTITION, num_cpu_blocks: 0, cpu_blocks: [],
};

export const snapshot = (state = EMPTY, seq = 0) => ({ v: 1, kind: "snapshot", arena: "a1", epoch: 0, seq, t: 0, state });

/** An envelope; memory is divided as its last step says, unless told. */
export const step = (seq, events, paused = false, partition = undefined) => ({
  v: 1, kind: "step", arena: "a1", epoch: 0, seq, t: seq * 10, paused, events,
  partition: partition ?? events.findLast((e) => e.type === "step_completed")?.partition ?? PARTITION,
});

export const arrive = (request, prompt_tokens = 1, max_tokens = 1, more = {}) =>
  ({ type: "request_arrived", request, prompt_tokens, max_tokens, source: "page", width: 1, beam: false, priority: 0, ...more });

export const requestState = (request, status, more = {}) => ({
  request, status, prompt_tokens: 1, max_tokens: 1, source: "page", sequences: [], reason: "", width: 1, beam: false, priority: 0, ...more,
});

export const sequenceState = (sequence, request, more = {}) =>
  ({ sequence, request, table: [], outputs: [], texts: [], finish: "", cpu_table: [], ...more });

export const blockState = (block, refs, tokens, texts, more = {}) =>
  ({ block, refs, tokens, texts, hash: "", size: 0, needed: 0, request: -1, ...more });

export const done = (number, batch, tokens, partition) => ({
  type: "step_completed", step: number, batch, tokens, waiting: 0, swapped: 0, ms: { schedule: 0.1, forward: 2, sample: 0.3 }, partition,
});

/** Request 0 has three prompt tokens, takes blocks 3 and 1, and picks two tokens; the second needs no new block. */
export const STEPS = [
  step(1, [arrive(0, 3, 2)]),
  step(2, [
    { type: "request_admitted", request: 0, sequences: [0] },
    { type: "block_allocated", block: 3, sequence: 0, logical: 0 },
    { type: "block_allocated", block: 1, sequence: 0, logical: 1 },
    { type: "slots_written", block: 3, first: 0, count: 2, tokens: [10, 11], texts: ["The", " cat"] },
    { type: "slots_written", block: 1, first: 0, count: 1, tokens: [12], texts: [" sat"] },
    { type: "token_generated", sequence: 0, token: 13, text: " on", logprob: -0.5 },
    done(1, 1, 3, part(3, 1, 4)),
  ]),
  step(3, [], true, part(3, 1, 4)),
  step(4, [
    { type: "slots_written", block: 1, first: 1, count: 1, tokens: [13], texts: [" on"] },
    { type: "token_generated", sequence: 0, token: 14, text: " it", logprob: -0.25 },
    { type: "sequence_finished", sequence: 0, reason: "length", output_tokens: 2 },
    { type: "request_finished", request: 0, reason: "length", output_tokens: 2 },
    { type: "block_released", block: 1, sequence: 0, refs: 0 },
    { type: "block_freed", block: 1 },
    { type: "block_released", block: 3, sequence: 0, refs: 0 },
    { type: "block_freed", block: 3 },
    done(2, 1, 1, part(0, 0, 8)),
  ], true),
];
