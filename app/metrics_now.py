"""What ``/metrics`` says is so at the moment of asking: requests, memory, sockets."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from app.arena import Arena
from app.arenas import Arenas
from app.metrics import LABELS
from app.observer import RUNNING, SWAPPED, WAITING
from engine.events import Partition

PARTS = ("token_states", "held", "reserved", "internal", "external", "free")


class Now(Collector):
    """Reads ``hub``; costs a little for each open arena and each of its requests."""

    def __init__(self, hub: Arenas) -> None:
        self._hub = hub

    def collect(self) -> Iterator[Metric]:
        hub = self._hub
        yield GaugeMetricFamily("paged:engine_ready", "1 while the model can be used.", value=float(hub.engine.ready))
        yield CounterMetricFamily("paged:engine_restarts", "How often the engine was lost.", value=hub.engine.restarts)
        yield GaugeMetricFamily("paged:sockets", "Open sockets of pages.", value=len(hub.clients))
        yield GaugeMetricFamily("paged:visitors_waiting", "Visitors in line for an arena.", value=hub.waiting)
        yield GaugeMetricFamily("paged:api_requests", "Requests of the API in flight.", value=len(hub.generations))
        yield from self._arenas()

    def _arenas(self) -> Iterator[Metric]:
        families = {
            name: GaugeMetricFamily(name, text, labels=(*LABELS, *more))
            for name, text, more in (
                ("vllm:num_requests_running", "Requests that run.", ()),
                ("vllm:num_requests_waiting", "Requests that wait.", ()),
                ("vllm:num_requests_swapped", "Requests that were swapped out.", ()),
                ("vllm:kv_cache_usage_perc", "Share of the slots that belong to a request, 0 to 1.", ()),
                ("vllm:cpu_cache_usage_perc", "Share of the blocks for swapping that are in use, 0 to 1.", ()),
                ("paged:arenas", "Open arenas.", ()),
                ("paged:prefixes", "Prefixes that are registered.", ()),
                ("paged:cached_slots", "Unallocated slots whose content the prefix cache keeps.", ()),
                ("paged:kv_slots", "Slots by what they hold; the sum is the capacity.", ("part",)),
            )
        }
        model = self._hub.metrics.model_name
        for kind, arenas in self._hub.kinds().items() if model else ():
            for name, values in self._kind(arenas).items():
                for labels, value in values.items():
                    families[name].add_metric((model, kind, *labels), value)
        yield from families.values()

    def _kind(self, arenas: list[Arena]) -> dict[str, dict[tuple[str, ...], float]]:
        """Values by name and further labels, over ``arenas`` together."""
        states = dict.fromkeys((RUNNING, WAITING, SWAPPED), 0)
        total = Partition(0, 0, 0, 0, 0, 0)
        cpu_blocks = cpu_used = 0
        for arena in arenas:
            memory = arena.shape.memory
            seen = self._hub.observer.of(arena.name)
            partition = seen.partition if seen is not None else None
            total = _sum(total, partition or Partition(0, 0, 0, 0, 0, free=memory.slots))
            cpu_blocks += memory.cpu_blocks
            cpu_used += seen.cpu_blocks if seen is not None else 0
            for request in seen.requests.values() if seen is not None else ():
                states[request.state] += 1
        parts = {part: getattr(total, part) for part in PARTS}
        used = total.token_states + total.held + total.reserved + total.internal
        return {
            "vllm:num_requests_running": {(): states[RUNNING]},
            "vllm:num_requests_waiting": {(): states[WAITING]},
            "vllm:num_requests_swapped": {(): states[SWAPPED]},
            "vllm:kv_cache_usage_perc": {(): used / (sum(parts.values()) or 1)},
            "vllm:cpu_cache_usage_perc": {(): cpu_used / (cpu_blocks or 1)},
            "paged:arenas": {(): len(arenas)},
            "paged:prefixes": {(): sum(len(self._hub.prefixes.of(arena.name)) for arena in arenas)},
            "paged:cached_slots": {(): total.cached},
            "paged:kv_slots": {(part,): slots for part, slots in parts.items()},
        }


def _sum(one: Partition, other: Partition) -> Partition:
    return Partition(*(getattr(one, name) + getattr(other, name) for name in Partition.__struct_fields__))
