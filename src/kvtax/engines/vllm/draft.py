"""What speculative decoding adds to a rank: the draft's weights, its layers in the pool, and states to go back to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import CompressedLatent, FullAttention, LayerCache, MultiHeadLatent, SlidingWindow
from kvtax.architectures.drafts import as_draft, is_draft
from kvtax.engines.answer import Question
from kvtax.formulas.weights import RankTensor, rank_tensors
from kvtax.terms import Notice
from kvtax.units import ceil_div

WITHOUT_WEIGHTS = ("ngram", "ngram_gpu", "suffix")
"""Methods that draft from the text itself."""
EAGLE3_VOCABULARY = 32_000
"""Entries of the reduced output head of EAGLE3 drafts (draft_vocab_size of the published ones)."""
_KEY_PROJECTIONS = (
    "k_proj.weight",
    "kv_a_proj_with_mqa.weight",
    "wkv.weight",
    "qkv_proj.weight",
    "query_key_value.weight",
)
"""Weights that a layer with a cache has."""
_HIDDEN_STATES = {"eagle": 2, "eagle3": 3}
"""Hidden states that a draft's first projection takes in."""


class Draft(NamedTuple):
    """The draft on one rank.

    Args:
        tokens: drafted in a step [tokens].
        caches: of its layers, before sharding.
        tensors: its weights on a rank.
        notices: what rests on an assumption.
        refusal: why the engine would not start.
    """

    tokens: int = 0
    caches: tuple[LayerCache, ...] = ()
    tensors: tuple[RankTensor, ...] = ()
    notices: tuple[Notice, ...] = ()
    refusal: Notice | None = None


def is_mtp(method: str) -> bool:
    """Whether a method drafts with the model's own multi-token-prediction layers."""
    return method in ("mtp", "nextn") or method.endswith("_mtp")


def draft(question: Question, dtype: str) -> Draft:
    """The draft of a deployment.

    Args:
        question: names resolved; `draft` is the draft's own model where one is named.
        dtype: that weights of the model's dtype are held in.

    Source: vllm 0.33.0 config/speculative.py, v1/spec_decode/eagle.py (embedding and head are the target's own).
    """
    asked = question.deployment.speculative
    if asked is None:
        return Draft()
    tokens, tp = asked.num_speculative_tokens, question.deployment.tensor_parallel_size
    if asked.method in WITHOUT_WEIGHTS:
        return Draft(tokens)
    if question.draft is not None:
        model = as_draft(question.draft, asked.method)
        if is_draft(model) and question.deployment.pipeline_parallel_size > 1:
            # with stages the embedding is not shared with the target, which has it on the first
            kept = [
                tensor._replace(loaded=tensor.loaded or tensor.component == "embedding") for tensor in model.tensors
            ]
            model = model.replace(tensors=kept)
        own = [tensor._replace(component="mtp") for tensor in rank_tensors(model, tp, dtype=dtype)]
        return Draft(tokens, tuple(model.caches), tuple(own))
    if is_mtp(asked.method):
        return _own_layers(question, tokens, dtype)
    return _assumed(question, asked.method, tokens, dtype)


def _own_layers(question: Question, tokens: int, dtype: str) -> Draft:
    """The model's MTP layers: their weights but for embedding and head, which are the target's, and a cache each."""
    architecture, deployment = question.architecture, question.deployment
    own = [tensor for tensor in architecture.tensors if tensor.component == "mtp"]
    if not own:
        message = f"{architecture.name} has no multi-token-prediction layers to draft with"
        hint = "use --speculative eagle3:N, ngram:N or draft:N:MODEL"
        return Draft(tokens, refusal=Notice("no-mtp-layers", message, hint))
    kept = [tensor._replace(loaded=True) for tensor in own if tensor.shape[0] != architecture.vocab_size]
    found = rank_tensors(
        architecture.replace(tensors=kept),
        deployment.tensor_parallel_size,
        dp=deployment.data_parallel_size,
        expert_parallel=deployment.expert_parallel,
        dtype=dtype,
    )
    # of a pair of attention and experts (Nemotron 3) only the first keeps a cache
    layers = max(len({layer for tensor in own if tensor.name.endswith(_KEY_PROJECTIONS) for layer in tensor.layers}), 1)
    return Draft(tokens, _last_growing(architecture.caches) * layers, tuple(found))


def _last_growing(caches: Sequence[LayerCache]) -> tuple[LayerCache, ...]:
    """What a further layer of the model keeps: as its last one that grows."""
    for kinds in ((FullAttention, MultiHeadLatent), (SlidingWindow, CompressedLatent)):
        for cache in reversed(caches):
            if isinstance(cache, kinds):
                return (cache,)
    return ()


def _assumed(question: Question, method: str, tokens: int, dtype: str) -> Draft:
    """A draft of one layer with the target's widths, where its own model is not named."""
    architecture, tp = question.architecture, question.deployment.tensor_parallel_size
    count = draft_elements(architecture, method, tp)
    tensors = (RankTensor("draft.*", "mtp", dtype, (), 1, count, False),)
    message = f"the {method} draft is taken as one layer of the target's widths"
    notice = Notice("draft-assumed", message, f"name its model: --speculative {method}:{tokens}:MODEL")
    return Draft(tokens, _last_growing(architecture.caches), tensors, (notice,))


def draft_elements(architecture: Architecture, method: str, tp: int) -> int:
    """Weights of an EAGLE draft on one rank, embedding apart.

    inputs * hidden_size^2 + (qkv_inputs * (query + 2 * key) + query + 3 * intermediate_size) * hidden_size / tp (+ head / tp)

    Args:
        architecture: of the target.
        method: `eagle3` takes three hidden states, its attention two inputs, and it has a head of 32,000 entries.
        tp: tensor_parallel_size [ranks].

    Returns:
        Count [elements].

    Source: vllm 0.33.0 model_executor/models/llama_eagle.py and llama_eagle3.py, with the target's widths.
    """
    hidden = architecture.hidden_size
    query, key = (
        heads * architecture.head_dim for heads in (architecture.num_attention_heads, architecture.num_key_value_heads)
    )
    eagle3 = method == "eagle3"
    split = ((1 + eagle3) * (query + 2 * key) + query + 3 * architecture.intermediate_size) * hidden
    split += EAGLE3_VOCABULARY * hidden if eagle3 else 0
    return _HIDDEN_STATES.get(method, 2) * hidden * hidden + ceil_div(split, tp)
