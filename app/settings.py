"""Every setting of the server, with its environment name, default, bounds and meaning in one place.

The environment name of a setting is its field name in capitals (``kv_slots`` is ``KV_SLOTS``); the command line offers
the same settings as options (``--kv-slots``), which win over the environment.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from engine.config import EngineConfig

Preemption = Literal["auto", "recompute", "swap"]

LOOPBACK = ("localhost", "127.0.0.1", "::1")
EVERY_INTERFACE = ("", "0.0.0.0", "::")  # noqa: S104 - compared with, not bound to

FIRST_ARENA = 192
"""Slots of the arena that the page opens with: 48 blocks of 4."""
SMALLEST_CACHE = 448
"""Room for one block of the API's arena, of 256 slots at most, and for ``FIRST_ARENA`` beside it; where the blocks are
smaller, half of it holds the API's arena and the other half a reader's."""


class Settings(BaseSettings):
    """Settings of ``paged serve``. Raises pydantic's ``ValidationError``, which names the setting and the bound."""

    model_config = SettingsConfigDict(
        env_prefix="", env_ignore_empty=True, extra="forbid", frozen=True, protected_namespaces=()
    )

    host: str = Field(default="127.0.0.1", description="Address to listen on; 0.0.0.0 for every interface.")
    port: int = Field(default=8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    log_level: Literal["critical", "error", "warning", "info", "debug"] = Field(
        default="info", description="How much the server says on stderr."
    )

    model: str = Field(
        default="default",
        description="'default' (SmolLM2-135M-Instruct), 'tiny' (random weights), a folder, or a hub id.",
    )
    device: Literal["auto", "cpu", "cuda"] = Field(default="auto", description="Where the model runs: auto, cpu, cuda.")
    dtype: Literal["auto", "float32", "bfloat16"] = Field(
        default="auto", description="Arithmetic of the model; auto: bfloat16 where the processor has it."
    )
    attention: str = Field(
        default="auto", description="Attention kernel: triton, cpu, reference; auto picks by device."
    )
    kv_slots: int = Field(
        default=16384,
        ge=SMALLEST_CACHE,
        description=f"Tokens in the physical KV cache, over all arenas; at least {SMALLEST_CACHE}.",
    )
    cpu_kv_slots: int = Field(
        default=4096, ge=0, description="Tokens in the second cache, in main memory, that requests are swapped to."
    )
    token_budget: int = Field(default=512, ge=1, description="Query rows in one forward pass.")
    max_sequences: int = Field(default=32, ge=1, description="Sequences running at once, in each arena.")
    max_model_len: int = Field(
        default=0, ge=0, description="Longest sequence in tokens; 0 takes the model's own limit."
    )
    seed: int = Field(default=0, ge=0, description="Seed of requests that bring none.")

    api_block_size: int = Field(default=16, ge=1, le=256, description="Tokens per block of the API's own arena.")
    api_slots: int = Field(default=8192, ge=16, description="Slots of the API's own arena, carved out of KV_SLOTS.")
    api_cpu_slots: int = Field(
        default=2048, ge=0, description="Slots that the API's own arena may swap to, carved out of CPU_KV_SLOTS."
    )
    api_prefix_cache: Literal["on", "off"] = Field(
        default="on", description="Whether the API's own arena reuses computed blocks of equal prefixes: on, off."
    )
    api_preemption: Preemption = Field(
        default="auto",
        description="How the API's own arena makes room: recompute, swap, or auto: swap for groups of sequences alone.",
    )
    api_prefill_chunk: int = Field(
        default=0,
        ge=-1,
        description="Tokens of one prompt in one step of the API's own arena; 0: as TOKEN_BUDGET allows, -1: never cut.",
    )
    max_api_requests: int = Field(
        default=64, ge=1, description="API requests in flight at once in the API's own arena; more are answered 429."
    )
    max_arena_requests: int = Field(
        default=16, ge=1, description="API requests in flight at once in each visitor's arena; more are answered 429."
    )
    max_samples: int = Field(
        default=20, ge=1, description="Samples or beams of one prompt: the largest n or best_of, socket and API."
    )
    max_prefixes: int = Field(
        default=8, ge=0, description="Prefixes that the API keeps registered at once in each arena; 0 for none."
    )
    max_body_bytes: int = Field(default=262144, ge=1024, description="Longest body of an HTTP request, in bytes.")

    max_arenas: int = Field(default=32, ge=1, description="Visitors' arenas at once; more visitors wait in line.")
    max_arenas_per_socket: int = Field(
        default=8, ge=1, description="Arenas that one socket may carry, driven or viewed."
    )
    max_arena_slots: int = Field(
        default=1024,
        ge=FIRST_ARENA,
        description=f"Largest arena of a visitor: block size x number of blocks; at least {FIRST_ARENA}.",
    )
    max_arena_cpu_slots: int = Field(
        default=1024, ge=0, description="Largest pool in main memory that a visitor's arena may swap to, in slots."
    )
    max_sockets: int = Field(default=256, ge=1, description="Sockets at once; more are told to come back.")
    max_message_bytes: int = Field(default=65536, ge=1024, description="Longest message on a socket, in bytes.")
    max_prompt_chars: int = Field(default=20000, ge=1, description="Longest prompt in characters, socket and API.")
    client_queue: int = Field(
        default=256, ge=8, description="Envelopes that wait for a slow client; beyond, it gets a snapshot instead."
    )
    log_envelopes: int = Field(
        default=512, ge=1, description="Envelopes kept for each arena, for clients that reconnect with 'since'."
    )
    arena_grace_s: float = Field(
        default=60.0, ge=0, description="Seconds that an arena waits, paused, for a driver whose socket dropped."
    )
    allowed_origins: str = Field(
        default="", description="Further web origins that may open sockets, comma-separated; empty: this site alone."
    )
    allowed_hosts: str = Field(
        default="",
        description="Host names under which browsers may reach the server besides localhost and HOST, comma-separated; "
        "* for any; empty: none, or any where HOST is every interface.",
    )
    client_stall_s: float = Field(
        default=60.0, gt=0, description="Seconds after which a connection that takes nothing of what it is sent is cut."
    )

    engine_timeout_s: float = Field(
        default=120.0,
        gt=0,
        description="Seconds without an answer after which the engine is taken for hung and restarted.",
    )

    @field_validator("log_level", "device", "dtype", "api_prefix_cache", "api_preemption", mode="before")
    @classmethod
    def _small_letters(cls, value: object) -> object:
        return value.lower() if isinstance(value, str) else value

    @field_validator("allowed_hosts")
    @classmethod
    def _names_alone(cls, value: str) -> str:
        for host in (host.strip() for host in value.split(",")):
            if "/" in host or ("*" in host and host != "*"):
                raise ValueError(f"{host!r} is no host name: write a.example, without http:// and *, or * alone")
        return value

    def engine_config(self) -> EngineConfig:
        """The part that the engine process is started with."""
        return EngineConfig(
            model=self.model,
            device=self.device,
            dtype=self.dtype,
            kv_slots=self.kv_slots,
            cpu_kv_slots=self.cpu_kv_slots,
            token_budget=self.token_budget,
            max_sequences=self.max_sequences,
            max_model_len=self.max_model_len,
            attention=self.attention,
            seed=self.seed,
        )

    def origins(self) -> frozenset[str]:
        """``allowed_origins`` taken apart, without trailing slashes, in small letters."""
        listed = (origin.strip().rstrip("/").lower() for origin in self.allowed_origins.split(","))
        return frozenset(origin for origin in listed if origin)

    def hosts(self) -> frozenset[str] | None:
        """Names of ``hosts.name_of`` under which the server may be asked for; None for every one."""
        listed = {name_of(host) for host in self.allowed_hosts.split(",") if host.strip()}
        if "*" in listed or (not listed and name_of(self.host) in EVERY_INTERFACE):
            return None
        return frozenset({*listed, *LOOPBACK, name_of(self.host)})


def name_of(host: str) -> str:
    """A ``Host`` header without its port, in small letters, an IPv6 address without its brackets."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    if host.count(":") > 1:
        return host  # an IPv6 address, as settings name it
    return host.partition(":")[0].removesuffix(".")
