"""Find, load and check the model: what would be wrong is refused here, not noticed later."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from engine.config import EngineConfig
from engine.decoding.text import Vocabulary
from engine.messages import ModelInfo
from engine.model import attention_hook, exactness, model_support, tiny_model
from engine.model.model_runner import ModelRunner
from engine.model.model_store import NAME, REMARK, ensure_default_model
from engine.model.model_support import ModelRefused, longest
from kernels.dispatch import select_backend

Report = Callable[[str, float], None]
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Loaded:
    runner: ModelRunner
    vocabulary: Vocabulary
    info: ModelInfo
    eos: frozenset[int]


def load(config: EngineConfig, report: Report) -> Loaded:
    """Load ``config.model`` and prove it. ``report`` hears (stage, progress from 0 to 1).

    Raises ModelRefused or UnsupportedAttention for a model that cannot be right, ValueError for a device or dtype that
    does not exist.
    """
    transformers_logging.disable_progress_bar()
    device = choose_device(config.device)
    dtype = choose_dtype(config.dtype, device)
    attention_hook.register()
    source, name, label = locate(config, report)
    report("reading the weights", 0.55)
    model, tokenizer = tiny_model.build(config.seed) if source is None else _read(source, dtype)
    model = model.to(device=device, dtype=dtype).eval()
    if source is None:
        model.set_attn_implementation(attention_hook.NAME)
    backend = select_backend(device, dtype, config.attention)
    runner = ModelRunner(model, backend, config.kv_slots, config.cpu_kv_slots)
    report("preparing the attention kernels", 0.8)
    runner.warm_up()
    report("comparing paged attention with the model's own", 0.9)
    difference = exactness.compare(runner)
    log.info("%s: paged and eager logits differ by %.1e at most", name, difference)
    text = model.config.get_text_config()
    info = ModelInfo(
        name=name,
        label=label,
        architecture=type(model).__name__,
        device=describe(device),
        dtype=str(dtype).removeprefix("torch."),
        attention=f"{backend.name}: {backend.description}",
        max_model_len=longest(text, config.max_model_len, config.kv_slots),
        slots=config.kv_slots,
        kv_bytes_per_token=runner.bytes_per_token,
        cpu_slots=config.cpu_kv_slots,
        max_sequences=config.max_sequences,
    )
    return Loaded(runner, Vocabulary(tokenizer), info, _end_tokens(model, tokenizer))


def locate(config: EngineConfig, report: Report) -> tuple[str | None, str, str]:
    """Where the weights lie (None: drawn at random), the model's name, and an honest remark about them."""
    if config.model == "default":
        return str(ensure_default_model(lambda stage, part: report(stage, part * 0.5))), NAME, REMARK
    if config.model == "tiny":
        return None, tiny_model.NAME, tiny_model.LABEL
    name = Path(config.model).name if Path(config.model).is_dir() else config.model
    return config.model, name, ""


def choose_device(wanted: str) -> torch.device:
    if wanted not in ("auto", "cpu", "cuda"):
        raise ValueError(f"DEVICE is {wanted!r}: choose auto, cpu or cuda")
    if wanted == "cuda" and not torch.cuda.is_available():
        raise ValueError("DEVICE is 'cuda' and torch finds no CUDA device here: choose auto or cpu")
    return torch.device("cuda" if wanted != "cpu" and torch.cuda.is_available() else "cpu")


def choose_dtype(wanted: str, device: torch.device) -> torch.dtype:
    """``auto`` is bfloat16 where the processor computes in it, else float32."""
    names = {"float32": torch.float32, "bfloat16": torch.bfloat16}
    if wanted in names:
        return names[wanted]
    if wanted != "auto":
        raise ValueError(f"DTYPE is {wanted!r}: choose auto, float32 or bfloat16")
    return torch.bfloat16 if device.type == "cuda" or _cpu_has_bfloat16() else torch.float32


def _cpu_has_bfloat16() -> bool:
    flags = Path("/proc/cpuinfo")
    return flags.exists() and any(flag in flags.read_text() for flag in ("avx512_bf16", "amx_bf16"))


def describe(device: torch.device) -> str:
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    return f"CPU, {torch.get_num_threads()} threads"


def _read(source: str, dtype: torch.dtype) -> tuple[Any, Any]:
    try:
        model_support.check(AutoConfig.from_pretrained(source), source)
        with ThreadPoolExecutor(1) as beside:
            tokenizer = beside.submit(AutoTokenizer.from_pretrained, source)
            model = AutoModelForCausalLM.from_pretrained(source, dtype=dtype, attn_implementation=attention_hook.NAME)
            return model, tokenizer.result()
    except KeyError as error:
        if error.args != (attention_hook.NAME,):
            raise _unreadable(source, error) from error
        raise ModelRefused(
            f"{source} picks its attention from a list of its own, not through transformers' attention interface, so its "
            "memory cannot be paged: use another architecture"
        ) from error
    except (OSError, ValueError) as error:
        raise _unreadable(source, error) from error


def _unreadable(source: str, error: Exception) -> ModelRefused:
    return ModelRefused(
        f"the model {source!r} could not be loaded ({error}): give MODEL a folder with a causal language model, or a hub id "
        "that is reachable, or leave it out for the default model"
    )


def _end_tokens(model: Any, tokenizer: Any) -> frozenset[int]:
    ids = model.generation_config.eos_token_id if model.generation_config else None
    ids = ids if ids is not None else tokenizer.eos_token_id
    return frozenset() if ids is None else frozenset([ids] if isinstance(ids, int) else ids)
