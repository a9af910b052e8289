"""Every setting of the server, with its environment name, default, bounds and meaning in one place.

The environment name of a setting is its field name in capitals (``kv_slots`` is ``KV_SLOTS``); the command line offers
the same settings as options (``--kv-slots``), which win over the environment.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from engine.config import EngineConfig


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
    device: Literal["auto", "cpu", "cuda"] = Field(default="auto", description="Where the model runs.")
    dtype: Literal["auto", "float32", "bfloat16"] = Field(
        default="auto", description="Arithmetic of the model; auto: bfloat16 where the processor has it."
    )
    attention: str = Field(default="auto", description="Attention kernel; auto picks by device.")
    kv_slots: int = Field(default=16384, ge=64, description="Tokens in the physical KV cache, over all arenas.")
    token_budget: int = Field(default=512, ge=1, description="Query rows in one forward pass.")
    max_sequences: int = Field(default=32, ge=1, description="Sequences running at once, in each arena.")
    max_model_len: int = Field(
        default=0, ge=0, description="Longest sequence in tokens; 0 takes the model's own limit."
    )
    seed: int = Field(default=0, ge=0, description="Seed of requests that bring none.")

    api_block_size: int = Field(default=16, ge=1, le=256, description="Tokens per block of the API's own arena.")
    api_slots: int = Field(default=8192, ge=16, description="Slots of the API's own arena, carved out of KV_SLOTS.")
    max_api_requests: int = Field(
        default=64, ge=1, description="API requests in flight at once; more are answered 429."
    )
    max_body_bytes: int = Field(default=262144, ge=1024, description="Longest body of an HTTP request, in bytes.")

    max_arenas: int = Field(default=32, ge=1, description="Visitors' arenas at once; more visitors wait in line.")
    max_arenas_per_socket: int = Field(
        default=8, ge=1, description="Arenas that one socket may carry, driven or viewed."
    )
    max_arena_slots: int = Field(
        default=1024, ge=1, description="Largest arena of a visitor: block size x number of blocks."
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

    engine_timeout_s: float = Field(
        default=120.0,
        gt=0,
        description="Seconds without an answer after which the engine is taken for hung and restarted.",
    )

    @field_validator("log_level", "device", "dtype", mode="before")
    @classmethod
    def _small_letters(cls, value: object) -> object:
        return value.lower() if isinstance(value, str) else value

    def engine_config(self) -> EngineConfig:
        """The part that the engine process is started with."""
        return EngineConfig(
            model=self.model,
            device=self.device,
            dtype=self.dtype,
            kv_slots=self.kv_slots,
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
