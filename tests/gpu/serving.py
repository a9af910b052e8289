"""Tokens per second of the whole engine with a random Llama in the shape of SmolLM2-135M: the words are noise, the work
is the same."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from engine.commands import Commands
from engine.engine import Engine
from engine.events import StepCompleted
from engine.messages import Memory, OpenArena, Sampling, Stepped, Submit
from engine.model import attention_hook
from engine.model.model_runner import ModelRunner
from engine.submission import Limits
from kernels.dispatch import select_backend
from tests.engine.harness import Letters
from tests.gpu.timing import Setting

PROMPT, BLOCK_SIZE = 32, 16


def model_of(setting: Setting) -> Any:
    """30 layers of 9 heads over 3 KV heads, in bfloat16; in a quick check two thin ones, in float32."""
    shape = {"num_hidden_layers": 30, "hidden_size": 576, "intermediate_size": 1536, "vocab_size": 49152}
    if setting.quick:
        shape = {"num_hidden_layers": 2, "hidden_size": 72, "intermediate_size": 96, "vocab_size": 199}
    config = LlamaConfig(
        **shape,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = LlamaForCausalLM(config).eval()
    return model.to(setting.device, torch.float32 if setting.quick else torch.bfloat16)


def tokens_per_second(setting: Setting) -> Iterator[str]:
    """Lines of a table: all requests begin at once; the first step is left out of the step's time, not of the whole."""
    batches, outputs = ((1, 2), 3) if setting.quick else ((1, 8, 32, 128), 128)
    model = model_of(setting)
    attention_hook.register()
    model.set_attn_implementation(attention_hook.NAME)
    backend = select_backend(setting.device, model.dtype, "triton")
    blocks = max(batches) * -(-(PROMPT + outputs) // BLOCK_SIZE)
    runner = ModelRunner(model, backend, slots=blocks * BLOCK_SIZE)
    runner.warm_up()
    yield f"attention: {backend.description}, {model.dtype}, {PROMPT} tokens in, {outputs} out"
    yield "batch   tokens/s   tokens/s of a decode step   step ms: forward   sampling   scheduling"
    serve(runner, batches[0], 2, blocks)  # what is compiled or allocated at first use
    for batch in batches:
        seconds, steps = serve(runner, batch, outputs, blocks)
        decodes = [step for step in steps if step.tokens == batch]
        phases = [[getattr(step.ms, name) for step in decodes] for name in ("forward", "sample", "schedule")]
        forward, sample, schedule = (statistics.median(times) for times in phases)
        whole = statistics.median(map(sum, zip(*phases, strict=True)))
        yield (
            f"{batch:5} {batch * outputs / seconds:10.0f} {batch / whole * 1e3:27.0f} {forward:18.2f} {sample:10.2f} "
            f"{schedule:12.2f}"
        )


def serve(runner: ModelRunner, batch: int, outputs: int, blocks: int) -> tuple[float, list[StepCompleted]]:
    """Seconds of the whole run, and what its steps say of themselves."""
    vocabulary: Any = Letters()
    limits = Limits(2048, max_sequences=batch)
    engine = Engine(runner, vocabulary, limits, token_budget=max(512, batch), seed=0)
    steps: list[StepCompleted] = []

    def hear(reply: Any) -> None:
        if isinstance(reply, Stepped):
            steps.extend(event for event in reply.step.events if isinstance(event, StepCompleted))

    commands = Commands(engine, hear)
    commands.carry_out(OpenArena(1, "check", Memory(BLOCK_SIZE, blocks)))
    draw = random.Random(0)
    sampling = Sampling(max_tokens=outputs, ignore_eos=True)
    for number in range(batch):
        prompt = [draw.randrange(3, 190) for _ in range(PROMPT)]
        commands.carry_out(Submit(2 + number, "check", prompt, sampling, "api"))
    started = time.perf_counter()
    while engine.next_due() is not None:
        for place in engine.step():
            commands.tell(place)
    return time.perf_counter() - started, steps
