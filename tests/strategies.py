"""Hypothesis strategies: caches, valid configs, and configs that are nearly valid."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from kvtax.architectures.cache import (
    ChunkedLocal,
    FullAttention,
    LayerCache,
    MultiHeadLatent,
    NoCache,
    Recurrent,
    SlidingWindow,
    State,
)

heads = st.sampled_from([1, 2, 4, 5, 8, 16, 28, 32])
widths = st.sampled_from([32, 64, 80, 96, 128, 192, 256, 512])
windows = st.integers(1, 40_000)
KV_DTYPES = ("float32", "bfloat16", "fp8_e4m3", "int8_per_token_head", "nvfp4", "q8_0", "q4_0")

# NamedTuples are built through tuples: hypothesis would otherwise make up values for fields that have a default
full = st.tuples(heads, widths, widths).map(lambda fields: FullAttention(*fields))
sliding = st.tuples(heads, widths, widths, windows).map(lambda fields: SlidingWindow(*fields))
chunked = st.tuples(heads, widths, widths, windows).map(lambda fields: ChunkedLocal(*fields))
latent = st.tuples(st.sampled_from([256, 512]), st.sampled_from([32, 64]), st.sampled_from([0, 132])).map(
    lambda fields: MultiHeadLatent(*fields)
)
state = st.tuples(
    st.sampled_from(["conv", "recurrent"]), st.tuples(st.sampled_from([64, 128, 4096]), st.integers(1, 128))
).map(lambda fields: State(*fields))
recurrent = st.tuples(st.sampled_from(["mamba1", "mamba2", "gated_delta_net"]), st.tuples(state, state)).map(
    lambda fields: Recurrent(*fields)
)


def caches() -> st.SearchStrategy[LayerCache]:
    return st.one_of(full, sliding, chunked, latent, recurrent, st.just(NoCache()))


def llama_configs() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "model_type": st.just("llama"),
            "architectures": st.just(["LlamaForCausalLM"]),
            "num_hidden_layers": st.integers(1, 64),
            "hidden_size": st.sampled_from([256, 512, 1024, 2048, 4096]),
            "intermediate_size": st.sampled_from([512, 1000, 14336]),
            "num_attention_heads": st.sampled_from([8, 16, 32]),
            "num_key_value_heads": st.sampled_from([1, 2, 4, 8]),
            "vocab_size": st.sampled_from([1000, 32000, 128256]),
            "torch_dtype": st.sampled_from(["bfloat16", "float16"]),
        },
        optional={
            "head_dim": st.sampled_from([64, 128]),
            "tie_word_embeddings": st.booleans(),
            "attention_bias": st.booleans(),
            "mlp_bias": st.booleans(),
            "max_position_embeddings": st.sampled_from([2048, 8192, 131072]),
        },
    )


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**40), 10**40) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
