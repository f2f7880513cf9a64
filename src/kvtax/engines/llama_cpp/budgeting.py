"""From a context and a placement to what each card and RAM hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from kvtax.architectures.gguf.shape import Shape
from kvtax.engines.answer import Card, Host, Memory
from kvtax.engines.llama_cpp import cache, compute, placement
from kvtax.engines.llama_cpp.cache import Context
from kvtax.engines.llama_cpp.placement import HOST, Share, Weights
from kvtax.units import MIB

OUTSIDE_BYTES = 298 * MIB
"""CUDA context and kernels of one process on one card: 297 to 298 MiB on A40, 451 to 456 on RTX 4090, 104 to 248 before any buffer on
RTX 5070 Ti (driver's figure minus llama.cpp's buffers)."""
FIT_MARGIN_BYTES = 1024 * MIB
"""What --fit leaves free on each card (--fit-target)."""
PIPELINE_COPIES = 4
"""Copies of the inputs that several cards work on in turn (GGML_SCHED_MAX_COPIES)."""


class Machine(NamedTuple):
    """The cards and what is done with them.

    Args:
        cards: in order.
        outside_bytes: taken on each card before llama.cpp allocates [bytes].
        shares: of each card in the layers.
        split_mode: layer, row, tensor or none.
        n_gpu_layers: units on cards [layers].
        experts_in_ram: blocks whose experts stay in RAM [layers].
        kv_offload: whether caches follow their layers.
        mmproj_bytes: the projector, on the first card [bytes].
        on_cuda: whether the cards are NVIDIA's.
    """

    cards: tuple[Card, ...]
    outside_bytes: tuple[int, ...]
    shares: tuple[float, ...]
    split_mode: str
    n_gpu_layers: int
    experts_in_ram: int
    kv_offload: bool
    mmproj_bytes: int
    on_cuda: bool

    @property
    def free_bytes(self) -> tuple[int, ...]:
        """What each card has free when the load starts [bytes]."""
        return tuple(card.total_bytes - taken for card, taken in zip(self.cards, self.outside_bytes, strict=True))


class Device(NamedTuple):
    """One card's part: its share of the model, its caches and its compute buffer."""

    card: int
    share: Share
    kv_bytes: int
    state_bytes: int
    compute_bytes: int
    memory: Memory


class Load(NamedTuple):
    """A whole load."""

    devices: tuple[Device, ...]
    host: Host
    host_share: Share
    output_bytes: int

    @property
    def tightest(self) -> Device:
        """The card with least left."""
        return min(self.devices, key=lambda device: device.memory.unallocated_bytes)


def shares_of(machine: Machine, weights: Weights) -> dict[int, Share]:
    """Who holds what, by split mode."""
    if machine.split_mode in ("row", "tensor") and machine.n_gpu_layers > len(weights.layers):
        return placement.share_out(weights, machine.shares)
    cards = placement.assign(len(weights.layers), machine.n_gpu_layers, machine.shares)
    return placement.place(weights, cards, experts_in_ram=machine.experts_in_ram)


def load(
    shape: Shape,
    weights: Weights,
    context: Context,
    machine: Machine,
    era: compute.Era,
    weights_bytes: int | None = None,
) -> Load:
    """What llama.cpp allocates on each card and in RAM.

    Args:
        shape: of the model.
        weights: by block.
        context: what the context is made with.
        machine: the cards.
        era: of the build.
        weights_bytes: of each card, where known from a log [bytes].

    Returns:
        The load.

    Source: ggml-org/llama.cpp b11434 src/llama-model.cpp, src/llama-context.cpp, src/llama-kv-cache.cpp.
    """
    shares = shares_of(machine, weights)
    host_share = shares[HOST]
    on_host = bool(host_share.layers) or machine.experts_in_ram > 0 or machine.n_gpu_layers == 0
    whole = machine.split_mode in ("row", "tensor") and len(machine.shares) > 1
    parts = _parts(shares, machine, whole)
    used = sum(1 for card in shares if card != HOST)
    devices = []
    for index, card in enumerate(machine.cards):
        share = shares.get(index, Share(0, (), False))
        kv, state = _caches(shape, context, share, parts.get(index, (1, 1)), machine.kv_offload)
        buffer = _compute(shape, context, machine, era, weights, share, on_host, used)
        size = share.weights_bytes if weights_bytes is None else weights_bytes
        extra = machine.mmproj_bytes if index == 0 else 0
        total = card.total_bytes
        memory = Memory(total, total, size, extra, 0, machine.outside_bytes[index], buffer, 0, kv + state)
        devices.append(Device(index, share, kv, state, buffer, memory))
    output = cache.output_bytes(shape, context)
    return Load(tuple(devices), _host(shape, context, machine, era, host_share, on_host, output), host_share, output)


def _parts(shares: Mapping[int, Share], machine: Machine, whole: bool) -> dict[int, tuple[float, float]]:
    """The part of every cache on each card, where matrices are cut."""
    if not whole or machine.split_mode != "tensor":
        return {}
    return {index: (machine.shares[index], sum(machine.shares)) for index in shares if index != HOST}


def _caches(
    shape: Shape, context: Context, share: Share, part: tuple[float, float], kv_offload: bool
) -> tuple[int, int]:
    """Keys and values, and state, of the layers of one card [bytes]."""
    if not kv_offload:
        return 0, 0
    kv = sum(cache.layer_kv_bytes(shape, shape.layers[index], context) for index in share.layers)
    state = sum(cache.layer_state_bytes(shape, shape.layers[index], context) for index in share.layers)
    if part[0] == part[1]:
        return kv, state
    return -int(-kv * part[0] // part[1]), -int(-state * part[0] // part[1])


def _compute(
    shape: Shape,
    context: Context,
    machine: Machine,
    era: compute.Era,
    weights: Weights,
    share: Share,
    on_host: bool,
    used: int,
) -> int:
    """The compute buffer of one card [bytes]."""
    if not share.weights_bytes and not share.layers:
        return 0
    if not on_host:
        parts = compute.device_parts(shape, context, era, outputs=share.output, on_cuda=machine.on_cuda)
        again = (PIPELINE_COPIES - 1) * (parts.mask_bytes + 4 * shape.embedding_length * context.ubatch)
        return parts.total_bytes + (again if used > 1 and machine.split_mode == "layer" else 0)
    size = compute.partial_device_bytes(shape, context, era, outputs=share.output, on_cuda=machine.on_cuda)
    if not machine.on_cuda or context.ubatch < OFFLOADED_BATCH:
        return size
    only_experts = machine.n_gpu_layers > len(shape.layers)
    return size + (weights.largest_expert_bytes if only_experts else weights.largest_bytes)


OFFLOADED_BATCH = 32
"""Batches from this size on bring matrices that stay in RAM to the card to multiply [tokens]. Source: ggml-cuda.cu offload_op."""


def _host(
    shape: Shape, context: Context, machine: Machine, era: compute.Era, share: Share, on_host: bool, output_bytes: int
) -> Host:
    """What is in RAM: embeddings and blocks, caches, compute and output buffers."""
    layers: Sequence[int] = share.layers if machine.kv_offload else range(len(shape.layers))
    kv = sum(cache.layer_bytes(shape, shape.layers[index], context) for index in layers)
    buffer = compute.host_bytes(shape, context, era)
    if on_host:
        buffer = compute.host_layers_bytes(shape, context, era, outputs=share.output)
    return Host(share.weights_bytes, kv, buffer + output_bytes)


def fitted(
    shape: Shape, weights: Weights, context: Context, machine: Machine, era: compute.Era, weights_bytes: int | None
) -> Machine:
    """The machine as --fit leaves it: nothing changes where each card keeps 1 GiB free; else experts, then layers go to RAM.

    Dense models keep as many of their last layers on cards as fit; models with experts first keep all experts in RAM, then bring them back
    from the last block. Partial blocks of experts are not modelled.

    Source: ggml-org/llama.cpp b11434 common/fit.cpp, from its description: margins, order; no real run was compared.
    """

    def fits(candidate: Machine) -> bool:
        found = load(shape, weights, context, candidate, era, weights_bytes)
        return all(device.memory.unallocated_bytes >= FIT_MARGIN_BYTES for device in found.devices)

    if fits(machine):
        return machine
    blocks = len(shape.layers)
    if weights.largest_expert_bytes and not machine.experts_in_ram:
        spared = machine._replace(experts_in_ram=blocks)
        if fits(spared):
            least = _lowest(1, blocks, lambda count: fits(machine._replace(experts_in_ram=count)))
            return machine._replace(experts_in_ram=least)
        machine = spared
    lost = _lowest(
        0, machine.n_gpu_layers, lambda count: fits(machine._replace(n_gpu_layers=machine.n_gpu_layers - count))
    )
    return machine._replace(n_gpu_layers=machine.n_gpu_layers - lost)


def _lowest(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The lowest number from low to high for which `holds`, which stays true once it is; high where it never is."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low
