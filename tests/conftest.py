"""Every engine that a test starts verifies its books after each step, in this process and in others."""

import os

import torch

os.environ["PAGED_VERIFY"] = "1"
os.environ.setdefault("HF_HUB_OFFLINE", "1")

# Triton decides when a kernel is decorated, and transformers may be imported, and Triton with it, before the kernels' tests.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
