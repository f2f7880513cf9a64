"""Draft models of speculative decoding in SGLang: their layers, weights, and tokens verified in a step."""

from __future__ import annotations

from typing import NamedTuple

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import LayerCache
from kvtax.architectures.drafts import as_draft
from kvtax.deployment import Deployment
from kvtax.engines.sglang.cells import per_attention_rank
from kvtax.formulas.weights import element_bytes, rank_tensors
from kvtax.units import ceil_div

DRAFT_VOCABULARY = 32000
"""Rows of an EAGLE-3 draft's own head (public EAGLE-3 drafts of Llama 3.1 and later)."""
WITHOUT_MODEL = ("ngram", "lookahead", "suffix")


class Draft(NamedTuple):
    """A draft on one rank.

    Args:
        method: as asked for, in small letters.
        verified_tokens: tokens that one step verifies: those drafted and the one before them [tokens].
        layers: with keys and values in the draft pool [layers].
        weights_bytes: on one rank, embedding and head shared with the model [bytes].
        estimated: the weights are an estimate: the draft is a model of its own.
        caches: of the draft's own layers on one rank, where its model is named.
    """

    method: str = ""
    verified_tokens: int = 0
    layers: int = 0
    weights_bytes: int = 0
    estimated: bool = False
    caches: tuple[LayerCache, ...] = ()


def find_draft(
    deployment: Deployment, architecture: Architecture, ranks: int, dtype: str, model: Architecture | None = None
) -> Draft:
    """The draft that a deployment asks for.

    layers: those of the checkpoint's MTP part, else 1; verified tokens: drafted + 1

    Args:
        deployment: its `speculative` names method and number.
        architecture: of the model.
        ranks: tensor_parallel_size [ranks].
        dtype: that unquantised weights run in.
        model: the draft's own, where one is named; EAGLE's embedding is the target's.

    Returns:
        The draft; method `` where none is asked for.

    Source: sglang 0.5.23 srt/arg_groups/speculative_hook.py: speculative_num_draft_tokens is the steps and one where topk is 1.
    """
    asked = deployment.speculative
    if asked is None:
        return Draft()
    method = asked.method.lower()
    verified = asked.num_speculative_tokens + 1
    if method in WITHOUT_MODEL:
        return Draft(method, verified)
    if model is not None:
        drafting = as_draft(model, method)
        held = rank_tensors(drafting, ranks, dtype=dtype)
        size = sum(element_bytes(tensor.elements, tensor.dtype) for tensor in held)
        caches = tuple(per_attention_rank(cache, ranks) for cache in drafting.caches)
        return Draft(method, verified, drafting.num_hidden_layers, size, False, caches)
    own = [tensor for tensor in architecture.tensors if tensor.component == "mtp"]
    if own and method not in ("eagle3", "standalone"):
        kept = [
            tensor._replace(loaded=True)
            for tensor in own
            if "embed_tokens" not in tensor.name and "shared_head.head" not in tensor.name
        ]
        held = rank_tensors(architecture.replace(tensors=kept), ranks, dtype=dtype)
        size = sum(element_bytes(tensor.elements, tensor.dtype) for tensor in held)
        layers = len({layer for tensor in own for layer in tensor.layers}) or 1
        return Draft(method, verified, layers, size)
    return Draft(method, verified, 1, eagle_bytes(architecture, ranks), True)


def eagle_bytes(architecture: Architecture, ranks: int) -> int:
    """Weights of an EAGLE-3 draft in 16 bit: one decoder layer with input of twice the width, the fusion of three, and a head of 32,000.

    2 * (2 * hidden * (q + 2 * kv) + q * hidden + 3 * hidden * intermediate + 32000 * hidden) / ranks + 2 * 3 * hidden^2

    Args:
        architecture: of the model that it drafts for.
        ranks: tensor_parallel_size [ranks].

    Returns:
        Size on one rank [bytes].

    Source: shape of public EAGLE-3 drafts (425 million parameters for Llama 3.1 8B).
    """
    hidden = architecture.hidden_size
    query = architecture.num_attention_heads * architecture.head_dim
    keys = architecture.num_key_value_heads * architecture.head_dim
    split = 2 * hidden * (query + 2 * keys) + query * hidden + 3 * hidden * architecture.intermediate_size
    split += DRAFT_VOCABULARY * hidden
    return 2 * ceil_div(split, ranks) + 2 * 3 * hidden * hidden
