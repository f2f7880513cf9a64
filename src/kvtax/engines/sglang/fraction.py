"""The share of the free memory that SGLang takes for weights and caches where nobody says, and the steps and graphs that go with it."""

from __future__ import annotations

from typing import NamedTuple

from kvtax.architectures.architecture import Architecture
from kvtax.engines.base import Version
from kvtax.engines.sglang.rules import rule

LADDER = ((16, 0.79), (8, 0.81), (4, 0.85), (2, 0.87), (1, 0.88))
"""Ranks and share of the releases before 0.4.8."""
FLOOR_MIB = 10 * 1024
"""Least reserve of a card of more than 60 GiB."""
LATENT_PREFILL_MIB = 1536
STANDALONE_DRAFT_MIB = 6144


class Reserve(NamedTuple):
    """What the automatic share depends on.

    Args:
        card_mib: memory of the card as nvidia-smi or rocm-smi prints it [MiB].
        tp: tensor_parallel_size [ranks].
        pp: pipeline_parallel_size [ranks].
        attention_ranks_apart: data parallel size of attention, 1 without DP attention [ranks].
        chunked_prefill_size: tokens of a prefill step; 0 or less: no chunks [tokens].
        max_prefill_tokens: of a step without chunks [tokens].
        graph_max_bs: largest decode batch that is captured [requests].
        decode_graphs: whether any is.
        prefill_graphs: whether prefill is captured.
        latent: latent attention (MLA).
        draft: `` for none, `standalone`, or any other method of drafting.
        prefill_limit: most tokens that a prefill graph may have, 0 for chunked_prefill_size [tokens].
    """

    card_mib: float
    tp: int = 1
    pp: int = 1
    attention_ranks_apart: int = 1
    chunked_prefill_size: int = 8192
    max_prefill_tokens: int = 16384
    graph_max_bs: int = 256
    decode_graphs: bool = True
    prefill_graphs: bool = True
    latent: bool = False
    draft: str = ""
    prefill_limit: int = 0


def step_defaults(card_mib: float, tp: int, version: Version) -> tuple[int, int]:
    """chunked_prefill_size and the largest decode batch captured, by the size of the card.

    below 20 GiB: 2048, 8; 35: see small_card_tier; 60: 4096, 32 (160 from tp 4 on); 160: 8192, 256 (512 from tp 4 on); else 16384, 512

    Args:
        card_mib: memory of the card as its tool prints it [MiB].
        tp: tensor_parallel_size [ranks].
        version: of SGLang.

    Returns:
        Tokens of a step and requests of the largest graph.

    Source: sglang 0.5.23 srt/arg_groups/memory_hook.py handle_gpu_memory_settings; older releases see rules.

    >>> step_defaults(81559, 1, (0, 5, 23))
    (8192, 256)
    """
    wide = tp >= 4
    kind = rule("steps", version)
    if kind != "tiers":
        small = card_mib < (25_000 if kind == "two" else 35 * 1024)
        largest = (80 if wide else 8) if small else 160
        if kind == "two" or small or card_mib < 160 * 1024:
            return (2048 if small else 8192), largest
        return 16384, largest
    if card_mib < 20 * 1024:
        return 2048, 8
    if card_mib < 35 * 1024:
        tokens, narrow_bs, wide_bs = rule("small_card_tier", version)
        return tokens, wide_bs if wide else narrow_bs
    if card_mib < 60 * 1024:
        return 4096, 160 if wide else 32
    if card_mib < 160 * 1024:
        return 8192, 512 if wide else 256
    return 16384, 512


def prefill_graph_sizes(largest: int) -> list[int]:
    """Token counts that prefill graphs are captured for.

    4 to 32 by 4, 48 to 256 by 16, 288 to 512 by 32, 576 to 1024 by 64, 1280 to 4096 by 256, 4608 and more by 512

    Args:
        largest: chunked_prefill_size, or less [tokens].

    Returns:
        The counts [tokens].

    Source: sglang 0.5.9 to 0.5.23; 0.5.23 srt/arg_groups/cuda_graph_hook.py.

    >>> [len(prefill_graph_sizes(tokens)) for tokens in (2048, 4096, 8192, 16384)]
    [42, 50, 58, 74]
    """
    steps = ((4, 33, 4), (48, 257, 16), (288, 513, 32), (576, 1025, 64), (1280, 4097, 256), (4608, largest + 1, 512))
    return [size for step in steps for size in range(*step) if size <= largest]


def decode_graph_sizes(largest: int, draft: bool) -> list[int]:
    """Batches that decode graphs are captured for.

    1, 2, 4, 8, 12, 16 to 256 by 8, 272 to 496 by 16, 512 and more by 32, and the largest;
    with a draft 1 to 8, 10 to 32 by 2, 40 to 64 by 4, 72 to 256 by 8, then by 16

    Args:
        largest: largest decode batch captured [requests].
        draft: speculative decoding is on.

    Returns:
        The batches [requests].

    Source: sglang 0.5.5 to 0.5.23 srt/server_args.py; 52 sizes to 512 in a log of an 8B model on B200.

    >>> len(decode_graph_sizes(512, False))
    52
    """
    usual = [1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 512, 16), *range(512, largest + 1, 32)]
    drafting = [*range(1, 9), *range(10, 33, 2), *range(40, 65, 4), *range(72, 257, 8), *range(272, largest + 1, 16)]
    found = [size for size in (drafting if draft else usual) if size <= largest]
    return found if largest in found else [*found, largest]


def reserved_mib(asked: Reserve, version: Version) -> float:
    """What stays out of the automatic share from 0.5.3 on.

    512 + 1.5 * max(tokens of a step, 2048) + 128 * tp * pp + 2 * graph_max_bs + graphs of prefill + padding of DP attention, at least 10240 above 60 GiB

    Args:
        asked: what it depends on.
        version: of SGLang.

    Returns:
        The reserve [MiB].

    Source: sglang 0.5.3 to 0.5.15 srt/server_args.py; 0.5.23 srt/arg_groups/memory_hook.py.
    """
    tokens = asked.chunked_prefill_size if asked.chunked_prefill_size > 0 else asked.max_prefill_tokens
    reserved = 512 + 1.5 * max(tokens, 2048) + asked.tp * asked.pp / 8 * 1024
    if asked.decode_graphs or version < (0, 5, 15):
        reserved += 2 * asked.graph_max_bs
    if asked.attention_ranks_apart > 1:
        reserved += 3 * asked.graph_max_bs * asked.attention_ranks_apart
        if asked.graph_max_bs > 300:
            reserved += 1.5 * asked.graph_max_bs * asked.attention_ranks_apart
    if rule("prefill_graphs", version) and asked.prefill_graphs:
        if asked.latent:
            reserved += LATENT_PREFILL_MIB
        else:
            reserved += 8 * len(prefill_graph_sizes(asked.prefill_limit or tokens))
    if asked.card_mib > 60 * 1024:
        reserved = max(reserved, FLOOR_MIB)
    return reserved + _draft_reserve(asked, version)


def _draft_reserve(asked: Reserve, version: Version) -> int:
    usual = int(rule("draft_reserve_mib", version))
    return STANDALONE_DRAFT_MIB if usual and asked.draft == "standalone" else usual if asked.draft else 0


def _by_card_mib(asked: Reserve, version: Version) -> float:
    """The reserve of 0.4.8 to 0.5.2: a figure by size of card and ranks."""
    ranks = asked.tp * asked.pp
    if asked.card_mib < 35 * 1024:
        reserved = (2.8 + ranks / 10) * 1024
    elif asked.card_mib < 90 * 1024:
        reserved = (9.5 + ranks / 2) * 1024
    elif asked.card_mib < 160 * 1024:
        reserved = (12 + ranks / 2) * 1024
    else:
        reserved = 32 * 1024
    if asked.attention_ranks_apart > 1:
        reserved += 4 * 1024
    return reserved + _draft_reserve(asked, version)


def automatic_fraction(asked: Reserve, version: Version) -> float:
    """mem_fraction_static where nobody gives it, before the share of vision models.

    round((card_mib - reserved_mib) / card_mib, 3); before 0.4.8 by ranks: 0.88, 0.87, 0.85, 0.81, 0.79

    Args:
        asked: what it depends on.
        version: of SGLang.

    Returns:
        The share [0-1].

    Source: sglang 0.4.3 to 0.5.23 (rules), and forty computed values of 0.5.23.

    >>> automatic_fraction(Reserve(81559), (0, 5, 23))
    0.83
    """
    kind = rule("fraction", version)
    card = asked.card_mib
    if kind in ("ladder", "large_cards"):
        ranks = asked.tp if kind == "ladder" else asked.tp * asked.pp
        share = next(value for least, value in LADDER if ranks >= least)
        if kind == "ladder":
            return share
        share = share if card <= 81920 else 0.88
        if card > 96 * 1024:
            share = min(share + 48 * 1024 * (1 - share) / card, (card - 18 * 1024) / card)
        return share
    reserved = _by_card_mib(asked, version) if kind == "by_card" else reserved_mib(asked, version)
    return round((card - reserved) / card, 3)


def vision_share(layers: int, hidden_size: int, version: Version) -> float:
    """What the automatic share of a vision model is multiplied with.

    0.95 * clamp(1 - 0.1 * (layers * hidden_size^2 / (24 * 1024^2) - 1), 0.8, 1.05)

    Args:
        layers: num_hidden_layers of vision_config, 24 where it has no such key [layers].
        hidden_size: of vision_config [elements].
        version: of SGLang.

    Returns:
        The factor.

    Source: sglang 0.4.10.post2 to 0.5.23 adjust_mem_fraction_for_vlm; 0.4.9.post2: 0.90.

    >>> vision_share(24, 1024, (0, 5, 23))
    0.95
    """
    kind = rule("vision_share", version)
    if kind == "none":
        return 1.0
    if kind == "flat":
        return 0.90
    growth = layers * hidden_size**2 / (24 * 1024**2)
    return 0.95 * max(0.8, min(1.05, 1.0 - 0.1 * (growth - 1.0)))


def vision_shape(architecture: Architecture) -> tuple[int, int] | None:
    """Layers and width of the vision tower as SGLang reads them from vision_config, None without a tower.

    Towers whose layers are called blocks state them as `depth`, which SGLang does not read: 24 layers are taken.

    Args:
        architecture: of the model.

    Returns:
        (layers, hidden_size), or None.

    Source: sglang 0.5.23 srt/arg_groups/memory_hook.py; names of the towers' tensors.
    """
    towers = [tensor for tensor in architecture.tensors if tensor.component == "vision" and tensor.loaded]
    if not towers:
        return None
    layered = [tensor for tensor in towers if tensor.layers]
    if not layered:
        return 24, 1024
    layers = max(len(tensor.layers) for tensor in layered)
    vectors = [tensor.shape[0] for tensor in layered if len(tensor.shape) == 1 and "norm" in tensor.name]
    by_depth = any(".blocks." in tensor.name for tensor in layered)
    return 24 if by_depth else layers, vectors[0] if vectors else 1024
