// @ts-check
/**
 * The shapes of the wire, as engine/events.py writes them. Types alone: nothing runs here.
 *
 * @typedef {{type: "request_arrived", request: number, prompt_tokens: number, max_tokens: number, source: string,
 *   width: number, beam: boolean, priority: number}} RequestArrived
 * @typedef {{type: "request_admitted", request: number, sequences: number[]}} RequestAdmitted
 * @typedef {{type: "request_refused", reason: string, source: string}} RequestRefused
 * @typedef {{type: "sequence_forked", sequence: number, parent: number}} SequenceForked
 * @typedef {{type: "sequence_finished", sequence: number, reason: string, output_tokens: number}} SequenceFinished
 * @typedef {{type: "request_finished", request: number, reason: string, output_tokens: number}} RequestFinished
 * @typedef {{type: "request_aborted", request: number, reason: string}} RequestAborted
 * @typedef {{type: "block_allocated", block: number, sequence: number, logical: number}} BlockAllocated
 * @typedef {{type: "slots_written", block: number, first: number, count: number, tokens: number[], texts: string[]}} SlotsWritten
 * @typedef {{type: "block_shared", block: number, sequence: number, logical: number, refs: number}} BlockShared
 * @typedef {{type: "prefix_hit", block: number, sequence: number, logical: number, refs: number, hash: string}} PrefixHit
 * @typedef {{type: "block_released", block: number, sequence: number, refs: number}} BlockReleased
 * @typedef {{type: "block_freed", block: number}} BlockFreed
 * @typedef {{type: "block_copied", source: number, destinations: number[], count: number}} BlockCopied
 * @typedef {{type: "block_cached", request: number, blocks: number[], hashes: string[], parent: string, tokens: number[]}} BlockCached
 * @typedef {{type: "block_evicted", block: number, hash: string}} BlockEvicted
 * @typedef {{type: "region_reserved", request: number, start: number, size: number, needed: number}} RegionReserved
 * @typedef {{type: "region_freed", request: number, start: number, size: number}} RegionFreed
 * @typedef {{type: "reservation_failed", request: number, needed: number, regions: number, largest_gap: number,
 *   unallocated: number}} ReservationFailed
 * @typedef {{type: "preempted", request: number, sequences: number[], mode: string}} Preempted
 * @typedef {{type: "swapped_out", request: number, pairs: [number, number][], bytes: number}} SwappedOut
 * @typedef {{type: "swapped_in", request: number, pairs: [number, number][], bytes: number}} SwappedIn
 * @typedef {{type: "token_generated", sequence: number, token: number, text: string, logprob: number}} TokenGenerated
 * @typedef {{token_states: number, held: number, reserved: number, internal: number, external: number, free: number,
 *   cached: number}} Partition
 * @typedef {{type: "step_completed", step: number, batch: number, tokens: number, waiting: number, swapped: number,
 *   ms: {schedule: number, forward: number, sample: number}, partition: Partition}} StepCompleted
 * @typedef {RequestArrived | RequestAdmitted | RequestRefused | SequenceForked | SequenceFinished | RequestFinished
 *   | RequestAborted | BlockAllocated | SlotsWritten | BlockShared | PrefixHit | BlockReleased | BlockFreed | BlockCopied
 *   | BlockCached | BlockEvicted | RegionReserved | RegionFreed | ReservationFailed | Preempted | SwappedOut | SwappedIn
 *   | TokenGenerated | StepCompleted} AnyEvent
 *
 * @typedef {{request: number, status: string, prompt_tokens: number, max_tokens: number, source: string,
 *   sequences: number[], reason: string, width: number, beam: boolean, priority: number}} RequestState
 * @typedef {{sequence: number, request: number, table: number[], outputs: number[], texts: string[], finish: string,
 *   cpu_table: number[]}} SequenceState
 * @typedef {{block: number, refs: number, tokens: number[], texts: string[], hash: string, size: number, needed: number,
 *   request: number}} BlockState
 * @typedef {{manager: string, block_size: number, num_blocks: number, step: number, paused: boolean,
 *   requests: RequestState[], sequences: SequenceState[], blocks: BlockState[], partition: Partition,
 *   num_cpu_blocks: number, cpu_blocks: BlockState[], within?: Within}} ArenaState
 *
 * What has happened since the last envelope, as far as later events depend on it; gone at its end. `replaced`: blocks that
 * copy-on-write has taken out of a table and that their sequence must let go of. `uncopied`: new block to the old one whose
 * content it is owed. `unfreed`: blocks that nobody refers to or has freed. `leaving`: sequences that have let go of some
 * of their blocks. `dropped`: those that are forgotten at the end. `bare`: those that got a token without a block.
 * `ran`: those that wrote slots, `rows`: how many.
 * @typedef {{replaced: {sequence: number, block: number}[], uncopied: {block: number, source: number}[],
 *   copies: {source: number, count: number}[], destinations: number[], unfreed: number[], leaving: number[],
 *   dropped: number[], bare: number[], ran: number[], rows: number, stepped: boolean}} Within
 *
 * @typedef {{v: number, kind: "snapshot", arena: string, epoch: number, seq: number, t: number, state: ArenaState}} Snapshot
 * @typedef {{v: number, kind: "step", arena: string, epoch: number, seq: number, t: number, paused: boolean,
 *   partition: Partition, events: AnyEvent[]}} Step
 *
 * @typedef {{name: string, label: string, architecture: string, device: string, dtype: string, attention: string,
 *   max_model_len: number, slots: number, kv_bytes_per_token: number, cpu_slots: number, max_sequences: number}} ModelInfo
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
