"""What an engine answers for one deployment, on its tightest rank."""

from __future__ import annotations

from typing import NamedTuple

from kvtax.architectures.architecture import Architecture
from kvtax.deployment import Deployment
from kvtax.hardware.gpu import Gpu


class Setting(NamedTuple):
    """A value that the engine uses and where it comes from: `flag`, `default of vllm 0.33`, `config.json` ..."""

    value: int | float | str | bool
    origin: str


class Question(NamedTuple):
    """A deployment with its names resolved; its own max_model_len and concurrency are not looked at."""

    deployment: Deployment
    architecture: Architecture
    gpu: Gpu
    total_bytes: int
    total_origin: str


class Memory(NamedTuple):
    """How one rank's memory is divided [bytes]."""

    total_bytes: int
    limit_bytes: int
    weights_bytes: int
    rope_bytes: int
    """Rope tables of the whole context, kept beside the parameters."""
    padding_bytes: int
    """What a kernel's repacking adds to the parameters."""
    workspace_bytes: int
    """Persistent buffers inside the limit (MoE workspace)."""
    outside_bytes: int
    """What lives outside the limit: context, communicators."""
    activation_bytes: int
    cuda_graph_bytes: int
    kv_pool_bytes: int

    @property
    def load_extra_bytes(self) -> int:
        """What loading keeps beside the parameters: rope tables and padding."""
        return self.rope_bytes + self.padding_bytes


class Pool(NamedTuple):
    """The KV pool as the engine counts it."""

    block_size: int
    bytes_per_block: int
    blocks: int
    blocks_per_request: int
    capacity_tokens: int
    max_concurrency: float
