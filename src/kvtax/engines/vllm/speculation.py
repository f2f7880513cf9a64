"""What speculative decoding adds to a model on vLLM: layers that draft, their caches, and columns of convolution states."""

from __future__ import annotations

from typing import NamedTuple

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import FullAttention, LayerCache, MultiHeadLatent, Recurrent, SlidingWindow
from kvtax.architectures.state import State
from kvtax.architectures.tensors import COLUMN, HEADS, REPLICATED, ROW, VOCAB, Tensor, linear, norm
from kvtax.terms import Notice
from kvtax.values import Speculative

WITHOUT_MODEL = frozenset(("ngram", "ngram_gpu", "suffix", "prompt_lookup"))
"""Methods that draft from the text itself: no weights, no cache."""
EAGLE_INPUTS = {"eagle": 2, "eagle3": 3}
"""Hidden states that the first projection of a draft takes (vllm model_executor/models/llama_eagle.py, llama_eagle3.py)."""
EAGLE3_VOCABULARY = 32_000
"""Rows of the reduced head of most published EAGLE3 drafts (draft_vocab_size of their configs)."""
_KEY_PROJECTIONS = ("k_proj.weight", "kv_a_proj_with_mqa.weight", "qkv_proj.weight", "query_key_value.weight")


class Speculation(NamedTuple):
    """A model with what drafts for it, the tokens drafted in a step, and what to say about it."""

    architecture: Architecture
    num_speculative_tokens: int = 0
    notices: tuple[Notice, ...] = ()
    refusal: Notice | None = None
    caches: int = 0
    """Caches of layers that draft, the last ones of the architecture."""


def is_mtp(method: str) -> bool:
    """Whether a method uses the model's own MTP layers: mtp, nextn, or a model type with _mtp."""
    return method in ("mtp", "nextn") or method.endswith("_mtp")


def speculate(
    architecture: Architecture, asked: Speculative | None, draft: Architecture | None = None, pipeline: int = 1
) -> Speculation:
    """The model with the layers that draft for it, and their caches on the last stage.

    Args:
        architecture: of the model that is served.
        asked: method and number of tokens; None: no speculation.
        draft: the draft model that was named, where it is known.
        pipeline: stages; layers that draft lie on the last [stages].

    Returns:
        The model as the engine holds it.

    Source: vllm 0.33.0 config/speculative.py, v1/spec_decode, model_executor/layers/mamba/mamba_utils.py. Starts: Qwen3.6-35B-A3B and
    Nemotron-3-Super with mtp print blocks of 1072 and 8432 tokens, which three draft tokens give to the byte; EAGLE on an 8B Llama
    takes 132 KiB a token, 33 layers.
    """
    if asked is None:
        return Speculation(architecture)
    method, count = asked.method, asked.num_speculative_tokens
    target = architecture.replace(
        caches=[_with_columns(cache, count) for cache in architecture.caches], cache_layers=architecture.cache_layers
    )
    if method in WITHOUT_MODEL:
        return Speculation(target, count)
    if draft is not None:
        tensors, caches = (
            _named(draft, method),
            [cache for cache in draft.caches if cache.kind not in ("shared", "no_cache")],
        )
        return _joined(target, tensors, caches, count)
    if is_mtp(method):
        return _own_layers(target, count, pipeline)
    if method in EAGLE_INPUTS:
        message = f"the {method} draft is not known: one layer of the model's own widths is taken" + (
            f", and a head of {EAGLE3_VOCABULARY} tokens" if method == "eagle3" else ""
        )
        notice = Notice("draft-estimated", message, 'name a draft whose config is at hand: "model" in --speculative')
        return _joined(
            target, _eagle(architecture, EAGLE_INPUTS[method]), [_draft_cache(architecture)], count, (notice,)
        )
    if method == "medusa":
        message = f"{count} Medusa heads of one layer and a head of the whole vocabulary are taken"
        return _joined(target, _medusa(architecture, count), [], count, (Notice("draft-estimated", message),))
    named = f" {asked.model!r:.80}" if asked.model else ""
    message = f"the draft of method {method}{named} is not known: its weights and cache are not counted"
    return Speculation(target, count, (Notice("draft-unknown", message, "give the path of its config as the model"),))


def _joined(
    target: Architecture, tensors: list[Tensor], caches: list[LayerCache], count: int, notices: tuple[Notice, ...] = ()
) -> Speculation:
    last = target.num_hidden_layers - 1
    found = target.replace(
        tensors=[*target.tensors, *tensors],
        caches=[*target.caches, *caches],
        cache_layers=[*target.cache_layers, *[last] * len(caches)],
    )
    return Speculation(found, count, notices, None, len(caches))


def _own_layers(target: Architecture, count: int, pipeline: int) -> Speculation:
    """MTP layers of the checkpoint; embedding and head are the model's own."""
    own = [tensor for tensor in target.tensors if tensor.component == "mtp" and tensor.stored]
    if not own:
        message = f"{target.name} lists no MTP layers in its config, and the engine has none to draft with"
        return Speculation(target, count, (), Notice("no-mtp-layers", message, "use eagle3, a draft model or ngram"))
    layers = {layer for tensor in own for layer in tensor.layers if tensor.name.endswith(_KEY_PROJECTIONS)}
    caches = [_growing_cache(target)] * max(len(layers), 1)
    rest = [tensor for tensor in target.tensors if tensor.component != "mtp" or not tensor.stored]
    loaded = [_on_last_stage(tensor, pipeline) for tensor in own if tensor.shard != VOCAB]
    return _joined(
        target.replace(tensors=rest, caches=target.caches, cache_layers=target.cache_layers), loaded, caches, count
    )


def _on_last_stage(tensor: Tensor, pipeline: int) -> Tensor:
    if pipeline == 1:
        return tensor._replace(loaded=True)
    # a tensor that stands once is on the last stage, whatever its index
    return tensor._replace(loaded=True, layers=(), per_layer=tensor.copies)


def _growing_cache(architecture: Architecture) -> LayerCache:
    """The cache of the last layer that holds every token; of the last layer at all where none does."""
    for cache in reversed(architecture.caches):
        if isinstance(cache, (FullAttention, MultiHeadLatent)):
            return cache
    kept = [
        cache
        for cache in architecture.caches
        if not isinstance(cache, Recurrent) and cache.kind not in ("shared", "no_cache")
    ]
    return kept[-1] if kept else _draft_cache(architecture)


def _draft_cache(architecture: Architecture) -> FullAttention:
    """Keys and values of a draft layer with the model's heads; latent attention's drafts are plain."""
    for cache in architecture.caches:
        if isinstance(cache, (FullAttention, SlidingWindow)):
            return FullAttention(cache.num_key_value_heads, cache.head_dim, cache.v_head_dim)
    heads = architecture.num_attention_heads or 1
    width = architecture.hidden_size // heads
    return FullAttention(max(1, architecture.num_key_value_heads or heads), width, width)


def _eagle(architecture: Architecture, inputs: int) -> list[Tensor]:
    """One decoder layer in the model's dtype, the projection of hidden states before it, and EAGLE3's own head."""
    hidden, cache = architecture.hidden_size, _draft_cache(architecture)
    heads, width = architecture.num_attention_heads, cache.head_dim
    source = 2 * hidden if inputs == 3 else hidden
    mlp = architecture.intermediate_size or 4 * hidden
    kv_heads = (0, cache.num_key_value_heads)
    found = [
        *linear("draft.fc", hidden, inputs * hidden, "mtp"),
        *linear("draft.self_attn.q_proj", heads * width, source, "mtp", shard=COLUMN),
        *linear(
            "draft.self_attn.k_proj", cache.num_key_value_heads * width, source, "mtp", shard=HEADS, heads=kv_heads
        ),
        *linear(
            "draft.self_attn.v_proj",
            cache.num_key_value_heads * cache.v_head_dim,
            source,
            "mtp",
            shard=HEADS,
            heads=kv_heads,
        ),
        *linear("draft.self_attn.o_proj", hidden, heads * cache.v_head_dim, "mtp", shard=ROW),
        *linear("draft.mlp.gate_proj", mlp, hidden, "mtp", shard=COLUMN),
        *linear("draft.mlp.up_proj", mlp, hidden, "mtp", shard=COLUMN),
        *linear("draft.mlp.down_proj", hidden, mlp, "mtp", shard=ROW),
        *norm("draft.input_layernorm", hidden, component="mtp"),
        *norm("draft.post_attention_layernorm", hidden, component="mtp"),
    ]
    if inputs == 3:
        rows = min(EAGLE3_VOCABULARY, architecture.vocab_size)
        found += linear("draft.lm_head", rows, hidden, "mtp", shard=VOCAB)
        found += norm("draft.hidden_norm", hidden, component="mtp") + norm("draft.norm", hidden, component="mtp")
    return [_held(tensor) for tensor in found]


def _medusa(architecture: Architecture, count: int) -> list[Tensor]:
    hidden = architecture.hidden_size
    block = Tensor("draft.blocks.*.linear.weight", (hidden, hidden), "mtp", per_layer=count)
    head = Tensor("draft.lm_heads.*.weight", (architecture.vocab_size, hidden), "mtp", per_layer=count, shard=VOCAB)
    return [_held(block), _held(head)]


def _held(tensor: Tensor) -> Tensor:
    # a draft is not quantised with the model, and is in none of its files
    return tensor._replace(linear=False, stored=False)


def _named(draft: Architecture, method: str) -> list[Tensor]:
    """A draft model's weights as it stores them; a draft of hidden states shares the embedding of the model."""
    shared = ("embedding",) if method in EAGLE_INPUTS else ()
    found = []
    for stored in draft.stored_tensors():
        source = stored.source
        if not source.loaded or source.component in ("vision", "audio", *shared):
            continue
        shard = source.shard if not stored.scale else REPLICATED
        found.append(
            Tensor(
                f"draft.{stored.name}",
                stored.shape,
                "mtp",
                (),
                stored.copies,
                shard,
                source.heads,
                dtype=stored.dtype,
                stored=False,
            )
        )
    return found


def _with_columns(cache: LayerCache, count: int) -> LayerCache:
    """A recurrent cache whose convolution states keep `count` columns more; Mamba 1 keeps none."""
    if not isinstance(cache, Recurrent) or cache.variant == "mamba1":
        return cache
    return cache._replace(states=tuple(_wider(state, count) for state in cache.states))


def _wider(state: State, count: int) -> State:
    if state.role != "conv" or len(state.shape) != 2:
        return state
    columns = 1 - max(state.axis, 0)
    shape = list(state.shape)
    shape[columns] += count
    return state._replace(shape=tuple(shape))
