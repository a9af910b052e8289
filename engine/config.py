"""Settings of the engine process, decided once at its start."""

from __future__ import annotations

import msgspec


class Unusable(Exception):
    """What the operator chose cannot run here; the message says why and what to do."""


class EngineConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``model``: ``default``, ``tiny`` (seeded random weights), a folder, or a hub id. ``device``: auto, cpu, cuda.
    ``dtype``: auto, float32, bfloat16. ``kv_slots``: tokens in the flat cache, over all arenas; ``cpu_kv_slots``: in the one
    that requests are swapped to. ``token_budget``: query rows in one forward pass. ``max_sequences``: sequences running at
    once, in each arena. ``max_model_len``: 0 takes the model's own limit. ``attention``: auto, or the name of a backend of
    ``kernels.dispatch``.
    """

    model: str = "default"
    device: str = "auto"
    dtype: str = "auto"
    kv_slots: int = 16384
    cpu_kv_slots: int = 4096
    token_budget: int = 512
    max_sequences: int = 32
    max_model_len: int = 0
    attention: str = "auto"
    seed: int = 0
