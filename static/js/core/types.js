// @ts-check
/**
 * The shapes of the wire, as engine/events.py writes them. Types alone: nothing runs here.
 *
 * @typedef {{type: "request_arrived", request: number, prompt_tokens: number, max_tokens: number, source: string}} RequestArrived
 * @typedef {{type: "request_admitted", request: number, sequences: number[]}} RequestAdmitted
 * @typedef {{type: "request_refused", reason: string, source: string}} RequestRefused
 * @typedef {{type: "request_finished", request: number, reason: string, output_tokens: number}} RequestFinished
 * @typedef {{type: "request_aborted", request: number, reason: string}} RequestAborted
 * @typedef {{type: "block_allocated", block: number, sequence: number, logical: number}} BlockAllocated
 * @typedef {{type: "slots_written", block: number, first: number, count: number, tokens: number[], texts: string[]}} SlotsWritten
 * @typedef {{type: "block_shared", block: number, sequence: number, logical: number, refs: number}} BlockShared
 * @typedef {{type: "block_released", block: number, sequence: number, refs: number}} BlockReleased
 * @typedef {{type: "block_freed", block: number}} BlockFreed
 * @typedef {{type: "preempted", sequence: number, mode: string}} Preempted
 * @typedef {{type: "token_generated", sequence: number, token: number, text: string, logprob: number}} TokenGenerated
 * @typedef {{token_states: number, held: number, reserved: number, internal: number, external: number, free: number}} Partition
 * @typedef {{type: "step_completed", step: number, batch: number, tokens: number, waiting: number,
 *   ms: {schedule: number, forward: number, sample: number}, partition: Partition}} StepCompleted
 * @typedef {RequestArrived | RequestAdmitted | RequestRefused | RequestFinished | RequestAborted | BlockAllocated
 *   | SlotsWritten | BlockShared | BlockReleased | BlockFreed | Preempted | TokenGenerated | StepCompleted} AnyEvent
 *
 * @typedef {{request: number, status: string, prompt_tokens: number, max_tokens: number, source: string,
 *   sequences: number[], reason: string}} RequestState
 * @typedef {{sequence: number, request: number, table: number[], outputs: number[], texts: string[]}} SequenceState
 * @typedef {{block: number, refs: number, tokens: number[], texts: string[]}} BlockState
 * @typedef {{manager: string, block_size: number, num_blocks: number, step: number, paused: boolean,
 *   requests: RequestState[], sequences: SequenceState[], blocks: BlockState[], partition: Partition}} ArenaState
 *
 * @typedef {{v: number, kind: "snapshot", arena: string, epoch: number, seq: number, t: number, state: ArenaState}} Snapshot
 * @typedef {{v: number, kind: "step", arena: string, epoch: number, seq: number, t: number, paused: boolean,
 *   partition: Partition, events: AnyEvent[]}} Step
 *
 * @typedef {{name: string, label: string, architecture: string, device: string, dtype: string, attention: string,
 *   max_model_len: number, slots: number, kv_bytes_per_token: number}} ModelInfo
 * @typedef {{v: number, kind: "status", state: string, stage?: string, progress?: number, model?: ModelInfo | null}} Status
 * @typedef {{v: number, kind: "opened", ref: number, arena: string, epoch: number, drive: boolean,
 *   drive_secret?: string, view_id: string}} Opened
 * @typedef {{v: number, kind: "queued", ref: number, position: number}} Queued
 * @typedef {{v: number, kind: "ok", ref: number, arena?: string | null, request?: number | null}} Ok
 * @typedef {{v: number, kind: "error", ref: number | null, arena: string | null, code: string, field: string, message: string}} Fault
 * @typedef {{v: number, kind: "closed", arena: string, reason: string}} Closed
 * @typedef {{v: number, kind: "pong", ref: number}} Pong
 * @typedef {Status | Pong | Opened | Queued | Snapshot | Step | Ok | Fault | Closed} Incoming
 *
 * @typedef {{format: string, v: number, label: string, model: ModelInfo, recorded: string}} TraceHeader
 */

export {};
