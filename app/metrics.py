"""What ``/metrics`` counts and measures. Names are vLLM's where the meaning is the same, else they begin with ``paged:``.

Every one has the labels ``model_name`` and ``arena``, which is ``api`` or ``visitors``: sum over the latter for what vLLM
would say. In the text the names of counters end in ``_total``.

Counts are kept here and not in the library's own counters: with their locks and labels they would cost more than all else
that is done with a token.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
API, VISITORS = "api", "visitors"
KINDS = (API, VISITORS)
ABORTED, REGISTERED = "abort", "registered"
LABELS = ("model_name", "arena")

SECONDS = [base * 10**power for power in range(-3, 3) for base in (1.0, 2.0, 5.0)]
"""1 ms to 500 s."""
TOKENS = [float(2**power) for power in range(15)]
"""1 to 16,384."""

# Name, what it is, and one more label with its values.
COUNTERS: tuple[tuple[str, str, str, Sequence[str]], ...] = (
    ("vllm:num_preemptions", "Requests that lost their memory for a time.", "", ()),
    ("vllm:prompt_tokens", "Tokens of prompts, computed or found in a cache.", "", ()),
    ("vllm:generation_tokens", "Tokens sampled, in all sequences.", "", ()),
    ("vllm:prefix_cache_queries", "Tokens of prompts looked up in the prefix cache.", "", ()),
    ("vllm:prefix_cache_hits", "Tokens of prompts found there; registered prefixes are not looked up.", "", ()),
    (
        "vllm:request_success",
        "Requests ended, by reason.",
        "finished_reason",
        ("stop", "length", "capacity", ABORTED, REGISTERED),
    ),
    ("paged:requests_refused", "Requests that the engine refused when they were submitted.", "", ()),
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
    ("vllm:request_generation_tokens", "Tokens of the sequences that a request ended with.", TOKENS),
    ("paged:request_width", "Samples or beams of a request.", TOKENS),
)


class Buckets:
    """One histogram: how many values lay up to each of ``bounds``, and above the last."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: list[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def cumulative(self) -> list[tuple[str, float]]:
        """(upper bound, values up to it), as Prometheus wants it."""
        names = [*(f"{bound:g}" for bound in self.bounds), "+Inf"]
        return list(zip(names, accumulate(self.counts), strict=True))


class Tally:
    """What was counted and measured of one kind of arenas. All of it stands at 0 from the start, so that rates begin
    there."""

    def __init__(self) -> None:
        self.counters = {(name, value): 0.0 for name, _, _, values in COUNTERS for value in values or ("",)}
        self.histograms = {name: Buckets(bounds) for name, _, bounds in HISTOGRAMS}

    def count(self, name: str, amount: float = 1, label: str = "") -> None:
        """``label`` is the value of the counter's own label, if it has one."""
        self.counters[name, label] += amount

    def measure(self, name: str, value: float) -> None:
        """Seconds or tokens."""
        self.histograms[name].add(value)


class Metrics(Collector):
    """The counters and histograms of one site. ``model_name`` is empty, and nothing is told, until there is a model."""

    def __init__(self) -> None:
        self.model_name = ""
        self.tallies = {kind: Tally() for kind in KINDS}

    def collect(self) -> Iterator[Metric]:
        tallies = self.tallies.items() if self.model_name else ()
        for name, text, label, values in COUNTERS:
            counter = CounterMetricFamily(name, text, labels=(*LABELS, *([label] if label else ())))
            for kind, tally in tallies:
                for value in values or ("",):
                    own = [value] if label else []
                    counter.add_metric([self.model_name, kind, *own], tally.counters[name, value])
            yield counter
        for name, text, _ in HISTOGRAMS:
            histogram = HistogramMetricFamily(name, text, labels=LABELS)
            for kind, tally in tallies:
                buckets = tally.histograms[name]
                histogram.add_metric([self.model_name, kind], buckets.cumulative(), buckets.total)
            yield histogram

    def text(self, state: Collector) -> bytes:
        """All of it and what ``state`` says is so now, in Prometheus's text format."""
        # Not in OpenMetrics, whatever is asked for: the library writes the colons of names as underscores there.
        return generate_latest(_Both(self, state))


class _Both(Collector):
    def __init__(self, *parts: Collector) -> None:
        self._parts = parts

    def collect(self) -> Iterator[Metric]:
        for part in self._parts:
            yield from part.collect()
