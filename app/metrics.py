"""What ``/metrics`` counts and measures. Names are vLLM's where the meaning is the same, else they begin with ``paged:``.

Every one has the labels ``model_name`` and ``arena``, which is ``api`` or ``visitors``: sum over the latter for what vLLM
would say. ``prometheus_client`` appends ``_total`` to the names of counters.
"""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
KINDS = ("api", "visitors")
ABORTED, REGISTERED = "abort", "registered"
LABELS = ("model_name", "arena")

SECONDS = [base * 10**power for power in range(-3, 3) for base in (1.0, 2.0, 5.0)]
"""1 ms to 500 s."""
TOKENS = [float(2**power) for power in range(15)]
"""1 to 16,384."""

# Name, what it is, and one more label with its values.
COUNTERS: tuple[tuple[str, str, str, Sequence[str]], ...] = (
    ("vllm:num_preemptions", "Requests that lost their memory for a time.", "", ()),
    ("vllm:prompt_tokens", "Tokens of prompts computed.", "", ()),
    ("vllm:generation_tokens", "Tokens sampled, in all sequences.", "", ()),
    ("vllm:prefix_cache_queries", "Tokens of prompts looked up in the prefix cache.", "", ()),
    ("vllm:prefix_cache_hits", "Tokens of prompts found there.", "", ()),
    (
        "vllm:request_success",
        "Requests ended, by reason.",
        "finished_reason",
        ("stop", "length", "capacity", ABORTED, REGISTERED),
    ),
    ("paged:requests_refused", "Requests that could never have run.", "", ()),
    ("paged:sequences_forked", "Sequences that began as another's copy.", "", ()),
    ("paged:blocks_copied", "Blocks copied before a write, since they were shared.", "", ()),
    ("paged:blocks_evicted", "Blocks that the prefix cache gave up.", "", ()),
    ("paged:swapped_bytes", "Keys and values swapped.", "direction", ("out", "in")),
)

HISTOGRAMS: tuple[tuple[str, str, list[float]], ...] = (
    ("vllm:iteration_tokens_total", "Tokens computed in a step of an arena.", TOKENS),
    ("vllm:time_to_first_token_seconds", "From a request's arrival to its first token.", SECONDS),
    ("vllm:inter_token_latency_seconds", "From one token of a sequence to the next.", SECONDS),
    ("vllm:e2e_request_latency_seconds", "From a request's arrival to its end.", SECONDS),
    ("vllm:request_queue_time_seconds", "From a request's arrival to its first admission.", SECONDS),
    ("vllm:request_prefill_time_seconds", "From its first admission to its first token.", SECONDS),
    ("vllm:request_decode_time_seconds", "From its first token to its last.", SECONDS),
    ("vllm:request_inference_time_seconds", "From its first admission to its end.", SECONDS),
    ("vllm:request_prompt_tokens", "Tokens of a request's prompt.", TOKENS),
    ("vllm:request_generation_tokens", "Tokens that a request had sampled.", TOKENS),
    ("paged:request_width", "Samples or beams of a request.", TOKENS),
)

disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """The counters and histograms of one site, zero until ``begin`` has said which model they are of."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.model_name = ""
        self._counters = {
            name: Counter(name, text, (*LABELS, *([label] if label else ())), registry=self.registry)
            for name, text, label, _ in COUNTERS
        }
        self._histograms = {
            name: Histogram(name, text, LABELS, buckets=buckets, registry=self.registry)
            for name, text, buckets in HISTOGRAMS
        }

    def begin(self, model_name: str) -> None:
        """From now on it is this model's; all that can be counted stands at 0, so that rates begin there."""
        self.model_name = model_name
        for kind in KINDS:
            for name, _, _, values in COUNTERS:
                for value in values or ("",):
                    self.count(name, kind, 0, *([value] if value else ()))
            for name, _, _ in HISTOGRAMS:
                self._histograms[name].labels(model_name, kind)

    def count(self, name: str, kind: str, amount: float, *more: str) -> None:
        """Add ``amount`` to a counter of ``COUNTERS``; ``more`` is the value of its own label."""
        self._counters[name].labels(self.model_name, kind, *more).inc(amount)

    def measure(self, name: str, kind: str, value: float) -> None:
        """Put ``value`` into a histogram of ``HISTOGRAMS``; seconds or tokens."""
        self._histograms[name].labels(self.model_name, kind).observe(value)

    def text(self, state: Collector) -> bytes:
        """All of it and what ``state`` says is so now, in Prometheus's text format."""
        # Not in OpenMetrics, whatever is asked for: the library writes the colons of names as underscores there.
        return generate_latest(_Both(self.registry, state))


class _Both(Collector):
    def __init__(self, *parts: Collector) -> None:
        self._parts = parts

    def collect(self):  # type: ignore[no-untyped-def]
        for part in self._parts:
            yield from part.collect()
