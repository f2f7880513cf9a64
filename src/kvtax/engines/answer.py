"""What an engine is asked, and what it answers: memory, pool and verdict of its tightest rank."""

from __future__ import annotations

from typing import Any, NamedTuple

from kvtax.architectures.architecture import Architecture
from kvtax.deployment import Deployment
from kvtax.hardware.gpu import Gpu
from kvtax.terms import Notice

FITS, KV_TOO_SMALL, OUT_OF_MEMORY, REFUSED = "fits", "kv_too_small", "out_of_memory", "refused"


class Setting(NamedTuple):
    """A value that the engine uses and where it comes from: `flag`, `default of vllm 0.33`, `config.json` ..."""

    value: int | float | str | bool
    origin: str


class Card(NamedTuple):
    """One card and the memory it has, as the driver reports it [bytes]."""

    gpu: Gpu
    total_bytes: int
    total_origin: str


class Question(NamedTuple):
    """A deployment with its names resolved; its own max_model_len and concurrency are not looked at.

    `gpu` and `total_bytes` are the smallest card's; `cards` has all that are named together; `draft` is the model of a speculative draft.
    """

    deployment: Deployment
    architecture: Architecture
    gpu: Gpu
    total_bytes: int
    total_origin: str
    cards: tuple[Card, ...] = ()
    draft: Architecture | None = None


class Memory(NamedTuple):
    """How one rank's memory is divided [bytes]."""

    total_bytes: int
    limit_bytes: int
    """What the engine may take; total_bytes for an engine without a limit."""
    weights_bytes: int
    """Parameters with their scales."""
    load_extra_bytes: int
    """What loading keeps beside the parameters: rope tables, padding, absorbed copies."""
    workspace_bytes: int
    """Persistent buffers inside the limit."""
    outside_bytes: int
    """What lives outside the limit: context, communicators, other processes."""
    activation_bytes: int
    cuda_graph_bytes: int
    kv_pool_bytes: int
    """Signed: what is left for KV, or what is allocated for it by an engine without a pool."""
    loading_bytes: int = 0
    """What loading needs for a while beyond rest: a copy of a layer, weights before they are quantised."""

    @property
    def runtime_bytes(self) -> int:
        """What else the engine needs: context and communicators, rope tables, workspaces [bytes]."""
        return self.load_extra_bytes + self.workspace_bytes + self.outside_bytes

    @property
    def unallocated_bytes(self) -> int:
        """total - weights - activation - graphs - runtime - pool: what nobody takes; negative where the card is overdrawn [bytes]."""
        taken = self.weights_bytes + self.activation_bytes + self.cuda_graph_bytes + self.kv_pool_bytes
        return self.total_bytes - taken - self.runtime_bytes


class Pool(NamedTuple):
    """The KV pool as the engine counts it."""

    block_size: int
    bytes_per_block: int
    blocks: int
    blocks_per_request: int
    capacity_tokens: int
    max_concurrency: float
    request_bytes: int
    """Set aside for one request of max_model_len, in whole blocks [bytes]."""
    bytes_per_token: int
    """Pool over the tokens that the engine prints; 0 where it prints none [bytes]."""


class Host(NamedTuple):
    """What the engine keeps in RAM [bytes]."""

    weights_bytes: int = 0
    kv_bytes: int = 0
    compute_bytes: int = 0


class Rank(NamedTuple):
    """One rank, stage or card beside others that differ from it."""

    name: str
    """`stage 0`, `card 1 (RTX 3060)` ..."""
    layers: int
    memory: Memory
    pool: Pool
    host: Host = Host()


class Answer(NamedTuple):
    """What an engine does with requests of one length.

    Args:
        memory: of the tightest rank.
        pool: of the tightest rank.
        verdict: fits | kv_too_small | out_of_memory | refused, for one request of max_model_len.
        reason: for another verdict than fits: the error in the engine's terms, and what to change.
        max_num_seqs: requests that may run at once.
        max_num_batched_tokens: tokens of one step.
        host: what is kept in RAM.
        ranks: every rank where they differ, the tightest among them.
        detail: the engine's own object, for its terms.
    """

    memory: Memory
    pool: Pool
    verdict: str
    reason: Notice | None
    max_num_seqs: int
    max_num_batched_tokens: int
    host: Host = Host()
    ranks: tuple[Rank, ...] = ()
    detail: Any = None


def pool_bytes_per_token(blocks: int, bytes_per_block: int, capacity_tokens: int) -> int:
    """Pool over tokens, to the nearest byte: (2 * blocks * bytes_per_block + capacity_tokens) // (2 * capacity_tokens).

    Args:
        blocks: of the pool [blocks].
        bytes_per_block: [bytes].
        capacity_tokens: as the engine prints them [tokens].

    Returns:
        Bytes of one token; 0 without tokens [bytes].

    Source: arithmetic.

    >>> pool_bytes_per_token(10, 2097152, 160)
    131072
    """
    if not capacity_tokens:
        return 0
    return (2 * blocks * bytes_per_block + capacity_tokens) // (2 * capacity_tokens)
