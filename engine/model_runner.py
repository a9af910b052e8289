"""One forward pass of a Hugging Face decoder over all arenas, reading and writing the flat cache through block tables."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from engine.attention_hook import Step, UnsupportedAttention, step_of
from engine.step_inputs import StepInputs
from kernels.dispatch import AttentionBackend


class ModelRunner:
    """A decoder, its attention backend and its cache.

    ``model``: a causal language model whose attention implementation is ``paged``. The cache holds ``slots`` tokens:
    for each layer a key and a value tensor of [slots, KV heads, head dim] in the model's dtype.
    """

    def __init__(self, model: Any, backend: AttentionBackend, slots: int) -> None:
        self.model = model
        self.backend = backend
        self.device: torch.device = model.device
        self.dtype: torch.dtype = model.dtype
        self.shape = cache_shape(model.config)
        layers, heads, width = self.shape
        self.keys = [torch.zeros(slots, heads, width, dtype=self.dtype, device=self.device) for _ in range(layers)]
        self.values = [torch.zeros_like(keys) for keys in self.keys]
        parameters = inspect.signature(model.forward).parameters
        self._keeps_rows = "logits_to_keep" in parameters

    @property
    def bytes_per_token(self) -> int:
        """Bytes of keys and values of one token over all layers (paper section 3)."""
        layers, heads, width = self.shape
        return 2 * layers * heads * width * self.dtype.itemsize

    def warm_up(self) -> None:
        """Bring the kernels in, so that the first request waits for nothing."""
        _, kv_heads, width = self.shape
        text = self.model.config.get_text_config()
        self.backend.warm_up(text.num_attention_heads, kv_heads, width, self.dtype)

    @torch.inference_mode()
    def forward(self, inputs: StepInputs) -> torch.Tensor:
        """Run the step: float32 logits [m, vocabulary] of the ``m`` sample rows. Writes this step's slots.

        Raises UnsupportedAttention when the model did not call the paged attention once for each layer.
        """
        step = Step(inputs.batch, self.backend, self.keys, self.values)
        options = {"logits_to_keep": inputs.sample_rows} if self._keeps_rows else {}
        with step_of(step):
            output = self.model(
                input_ids=inputs.input_ids,
                position_ids=inputs.position_ids,
                use_cache=False,
                return_dict=True,
                **options,
            )
        if step.calls != len(self.keys):
            raise UnsupportedAttention(
                f"{type(self.model).__name__} called the paged attention {step.calls} times in {len(self.keys)} layers: "
                f"it goes round transformers' attention interface, so its memory cannot be paged"
            )
        logits: torch.Tensor = output.logits[0]
        return (logits if self._keeps_rows else logits[inputs.sample_rows]).float()


def cache_shape(config: Any) -> tuple[int, int, int]:
    """Layers, KV heads and head dim of a model's configuration."""
    text = config.get_text_config()
    heads = text.num_attention_heads
    kv_heads = getattr(text, "num_key_value_heads", None) or heads
    width = getattr(text, "head_dim", None) or text.hidden_size // heads
    return text.num_hidden_layers, kv_heads, width
