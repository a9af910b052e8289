"""One GGUF file, read with transformers and saved again as the usual Hugging Face folder."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

Report = Callable[[str, float], None]
"""Called with what is being done and how much of the whole is behind us, from 0 to 1, never falling."""

# Where each stage begins, as a share of the whole (measured once). Only the tensors are counted one by one; within the
# other stages there is nothing to count, so a bar waits at their beginning.
_CONFIGURATION, _WEIGHTS, _TOKENIZER, _WRITE = 0.05, 0.30, 0.70, 0.95


def convert(gguf: Path, target: Path, report: Report) -> None:
    """Read ``gguf`` and save its model (float32) and tokenizer into the empty folder ``target``.

    Raises OSError when the disk is full or cannot be written, and whatever transformers raises for a file that it
    cannot read.
    """
    report("starting the converter", 0.0)
    import torch
    import transformers
    from safetensors import SafetensorError
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    with _quiet():
        source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
        report("reading the model's configuration", _CONFIGURATION)
        config = AutoConfig.from_pretrained(**source)

        report("dequantising the weights", _WEIGHTS)
        reader = {"config": config, "dtype": torch.float32}
        if hasattr(transformers, "GgufConfig"):  # where transformers can leave weights packed, ask for plain ones
            reader["quantization_config"] = transformers.GgufConfig(dequantize=True)
        share = _TOKENIZER - _WEIGHTS
        with _counting(lambda done: report("dequantising the weights", _WEIGHTS + share * done)):
            read = AutoModelForCausalLM.from_pretrained(**source, **reader)

        report("reading the tokenizer", _TOKENIZER)
        tokenizer = AutoTokenizer.from_pretrained(**source)

        report("writing the weights", _WRITE)
        # A model read from GGUF refuses to be saved, as a packed one would; its values move into a plain model.
        config = type(read.config).from_dict(read.config.to_dict())
        if hasattr(config, "quantization_config"):
            del config.quantization_config
        with torch.device("meta"):
            model = type(read)(config)
        model.load_state_dict(read.state_dict(), strict=True, assign=True)
        model.tie_weights()
        model.generation_config = read.generation_config
        try:
            model.save_pretrained(target)
        except SafetensorError as error:  # hides the number of the system's error in its text
            full = "No space left" in str(error) or "os error 28" in str(error)
            raise OSError(errno.ENOSPC if full else errno.EIO, str(error)) from error
        tokenizer.save_pretrained(target)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers' own progress bars off the terminal."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


@contextmanager
def _counting(report: Callable[[float], None]) -> Iterator[None]:
    """Turn the bar that transformers' GGUF loader draws into reports of the share of tensors done.

    Where the loader has no such bar, nothing is counted and the stage is reported by its beginning alone.
    """
    import transformers.modeling_gguf_pytorch_utils as loader

    def counted(tensors: Iterable[object], **_: object) -> Iterator[object]:
        every = list(tensors)
        for done, tensor in enumerate(every, start=1):
            yield tensor
            report(done / len(every))

    bar = getattr(loader, "tqdm", None)
    if bar is not None:
        loader.tqdm = counted
    try:
        yield
    finally:
        if bar is not None:
            loader.tqdm = bar
