"""One forward pass of a Hugging Face decoder over all arenas, reading and writing the flat cache through block tables."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from engine.model.attention_hook import Step, UnsupportedAttention, answered_by
from engine.model.attention_probe import probe
from engine.model.step_inputs import StepInputs
from kernels.dispatch import AttentionBackend

Move = tuple[int, int, int]
"""First source slot, first destination slot, number of slots."""


class ModelRunner:
    """A decoder, its attention backend, its cache and the memory that blocks are swapped out to.

    Attributes:
        model: a causal language model whose attention implementation is ``paged``.
        layers: what each layer asks of its attention.
        cache: [2 x layers, slots, KV heads, head dim] in the model's dtype, on its device. Plane ``2 i`` holds the keys
            of layer ``i``, plane ``2 i + 1`` its values; ``keys[i]`` and ``values[i]`` are views of them.
        host: [2 x layers, cpu_slots, KV heads, head dim] in the CPU's memory, pinned where the device is a GPU.
    """

    def __init__(self, model: Any, backend: AttentionBackend, slots: int, cpu_slots: int = 0) -> None:
        self.model = model
        self.backend = backend
        self.device: torch.device = model.device
        self.dtype: torch.dtype = model.dtype
        self.layers = probe(model)
        planes, row = 2 * len(self.layers), self.layers[0].cache_row
        self.cache = torch.zeros(planes, slots, *row, dtype=self.dtype, device=self.device)
        pinned = self.device.type == "cuda" and cpu_slots > 0
        self.host = torch.zeros(planes, cpu_slots, *row, dtype=self.dtype, pin_memory=pinned)
        self.keys, self.values = list(self.cache[0::2]), list(self.cache[1::2])
        self._keeps_rows = "logits_to_keep" in inspect.signature(model.forward).parameters

    @property
    def bytes_per_token(self) -> int:
        """Bytes of keys and values of one token over all layers (paper section 3)."""
        kv_heads, head_dim = self.layers[0].cache_row
        return 2 * len(self.layers) * kv_heads * head_dim * self.dtype.itemsize

    def warm_up(self) -> None:
        """Bring the kernels in, so that the first request waits for nothing."""
        for heads in {layer.heads for layer in self.layers}:
            self.backend.warm_up(heads, *self.layers[0].cache_row, self.dtype)

    @torch.inference_mode()
    def forward(self, inputs: StepInputs) -> torch.Tensor:
        """Run the step: float32 logits [m, vocabulary] of the ``m`` rows in ``sample_rows``. Writes this step's slots.

        Raises UnsupportedAttention when the model did not call the paged attention once in each layer.
        """
        step = Step(inputs.batch, self.backend, self.keys, self.values)
        options = {"logits_to_keep": inputs.sample_rows} if self._keeps_rows else {}
        with answered_by(step):
            output = self.model(
                input_ids=inputs.input_ids,
                position_ids=inputs.position_ids,
                use_cache=False,
                return_dict=True,
                **options,
            )
        if any(calls != 1 for calls in step.calls):
            raise UnsupportedAttention(
                f"{type(self.model).__name__} called the paged attention {step.calls} times in its layers: once in each is "
                "right, so this step's memory is not"
            )
        logits: torch.Tensor = output.logits[0]
        return (logits if self._keeps_rows else logits[inputs.sample_rows]).float()

    def copy(self, moves: list[Move]) -> None:
        """Copy slots within the cache, in all layers: the copies of a step's copy-on-write (paper section 4.4). They have
        no order, so none may write what another reads. See ``kernels.reference.copy_blocks`` for the errors."""
        if moves:
            self.backend.copy_blocks(self.cache, torch.tensor(moves, dtype=torch.int64))

    def swap_out(self, moves: list[Move]) -> None:
        """Copy slots of the cache to slots of ``host`` (paper section 4.5). See ``kernels.reference.swap_blocks``."""
        if moves:
            self.backend.swap_blocks(self.cache, self.host, torch.tensor(moves, dtype=torch.int64))

    def swap_in(self, moves: list[Move]) -> None:
        """Copy slots of ``host`` back to slots of the cache (paper section 4.5)."""
        if moves:
            self.backend.swap_blocks(self.host, self.cache, torch.tensor(moves, dtype=torch.int64))
