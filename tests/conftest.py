"""Every engine that a test starts verifies its books after each step, in this process and in others."""

import os

os.environ["PAGED_VERIFY"] = "1"
os.environ.setdefault("HF_HUB_OFFLINE", "1")
