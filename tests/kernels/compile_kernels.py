"""Compile the Triton kernels, exactly as they are launched, for GPUs that are not here.

    python -m tests.kernels.compile_kernels [--quick]

TRITON_INTERPRET must not be set. Runs the wrappers on CPU tensors with the launch replaced by a compilation for each
compute capability, and prints one line of JSON for each compiled kernel. ``--quick``: each kernel once.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kernels import triton_cache, triton_paged
from tests.kernels.cases import Sequence, build

CAPABILITIES = (80, 89, 90)
POINTERS = {
    torch.float32: "*fp32",
    torch.float16: "*fp16",
    torch.bfloat16: "*bf16",
    torch.int16: "*i16",
    torch.int32: "*i32",
    torch.int64: "*i64",
}
OPTIONS = ("num_warps", "num_stages")
# heads, KV heads, head dim, dtype: SmolLM2-135M's shape in both dtypes, Llama's, Gemma 2's wide heads.
SHAPES = [
    (9, 3, 64, torch.bfloat16),
    (9, 3, 64, torch.float32),
    (32, 8, 128, torch.float16),
    (8, 4, 256, torch.bfloat16),
]


class Compiler:
    """Stands where a kernel stood: ``compiler[grid](...)`` compiles what the launch would have run."""

    def __init__(self, kernel: Any, capabilities: tuple[int, ...], label: str) -> None:
        self.kernel = kernel
        self.capabilities = capabilities
        self.label = label

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return self.launch

    def launch(self, *args: Any, **named: Any) -> None:
        options = {name: named.pop(name) for name in OPTIONS if name in named}
        values = dict(zip(self.kernel.arg_names, args, strict=False)) | named
        signature, constants, attributes = {}, {}, {}
        for i, parameter in enumerate(self.kernel.params):
            value = values[parameter.name]
            kind = "constexpr" if parameter.is_constexpr else kind_of(value)
            if not parameter.is_constexpr and not parameter.do_not_specialize:
                if type(value) is int and value == 1:
                    kind = "constexpr"
                elif is_aligned(value):
                    attributes[(i,)] = [["tt.divisibility", 16]]
            signature[parameter.name] = kind
            if kind == "constexpr":
                constants[(i,)] = value
        for capability in self.capabilities:
            source = ASTSource(self.kernel, signature, constants, attributes)
            compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
            report = {"kernel": self.kernel.fn.__name__, "case": self.label, "sm": capability}
            print(
                json.dumps(report | {"shared": compiled.metadata.shared} | resources(compiled.asm["cubin"])), flush=True
            )


def kind_of(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return POINTERS[value.dtype]
    if isinstance(value, float):
        return "fp32"
    return "i32" if -(2**31) <= value < 2**31 else "i64"


def is_aligned(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.data_ptr() % 16 == 0
    return isinstance(value, int) and value % 16 == 0


def resources(cubin: bytes) -> dict[str, int]:
    """Registers and bytes of spill memory of a thread, read by the tool that Triton's package carries."""
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        said = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    return {name.lower(): int(number) for name, number in re.findall(r"(REG|STACK|LOCAL):(\d+)", said)}


def compile_all(quick: bool) -> None:
    attention, combine = triton_paged.paged_attention_kernel, triton_paged.combine_splits_kernel
    store, move = triton_cache.store_kv_kernel, triton_cache.move_slots_kernel
    triton_cache.COMPILED = False  # no GPU will reach for the cache
    capabilities = CAPABILITIES[-1:] if quick else CAPABILITIES
    for heads, kv_heads, head_dim, dtype in SHAPES[:1] if quick else SHAPES:
        for work, sequence in (("decode", Sequence(1, 100)), ("prefill", Sequence(100, 100)))[: 1 if quick else 2]:
            for splits, window, softcap in ((2, 32, 50.0), (1, 0, 0.0))[: 1 if quick else 2]:
                label = f"{work} {str(dtype)[6:]} {heads}/{kv_heads}x{head_dim} splits {splits} cap {softcap}"
                triton_paged.paged_attention_kernel = Compiler(attention, capabilities, label)
                triton_paged.combine_splits_kernel = Compiler(combine, capabilities, label)
                case = build([sequence] * 2, heads, kv_heads, head_dim, dtype=dtype)
                caches = case.key_cache, case.value_cache
                triton_paged.paged_attention(
                    case.query, *caches, case.batch, case.scale, window, softcap, splits=splits
                )
        label = f"{str(dtype)[6:]} {kv_heads}x{head_dim}"
        triton_cache.store_kv_kernel = Compiler(store, capabilities, label)
        triton_cache.move_slots_kernel = Compiler(move, capabilities, label)
        rows = case.key_cache[:5].clone()
        triton_cache.store_kv(rows, rows, *caches, torch.arange(5))
        triton_cache.copy_blocks(torch.zeros(2, 40, kv_heads, head_dim, dtype=dtype), torch.tensor([[0, 20, 16]]))


if __name__ == "__main__":
    compile_all(quick="--quick" in sys.argv[1:])
