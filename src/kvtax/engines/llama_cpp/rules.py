"""What changed in llama.cpp from build to build."""

from __future__ import annotations

from kvtax.engines.base import Rule, Version

NEWEST: Version = (11434,)
OLDEST: Version = (5500,)
SOURCE = "ggml-org/llama.cpp b11434"

# ---- what changed by build ----

_MASK = "logs of b7342 and b8586 (float32 masks) against b10809 and later"
RULES = (
    Rule("cells_padding", (0,), 32, "ggml-org/llama.cpp issue 17037: cells were padded to 32 with flash attention"),
    Rule("cells_padding", (7000,), 256, "ggml-org/llama.cpp b11434 src/llama-context.cpp, since about November 2025"),
    Rule("mask_bytes", (0,), 4, _MASK),
    Rule("mask_bytes", (9000,), 2, _MASK + "; the exact build is not known"),
    Rule("inputs_of_hidden_size", (0,), 1, "logs of b7342 and b8586: hidden states once"),
    Rule("inputs_of_hidden_size", (9000,), 2, "logs of b10809 to b11258: 8 bytes an element of hidden size"),
    Rule("inputs_of_hidden_size", (11300,), 4, "rows of b11434: 16 bytes an element of hidden size"),
    Rule("outputs_per_slot", (0,), False, "logits of the whole micro-batch were reserved"),
    Rule("outputs_per_slot", (9500,), True, "ggml-org/llama.cpp PR 23861, June 2026"),
    Rule("fused_qkv_is_value", (0,), False, "ggml-org/llama.cpp b8586 src/llama-quant.cpp"),
    Rule("fused_qkv_is_value", (9000,), True, "ggml-org/llama.cpp b11434 src/llama-quant.cpp; the exact build is not known"),
    Rule("latent_keys_only", (0,), False, "builds of 2025 kept the 512 values of the latent too"),
    Rule("latent_keys_only", (7800,), True, "ggml-org/llama.cpp b11434 src/llama-kv-cache.cpp; the exact build is not known"),
    Rule("copy_in_compute_buffer", (0,), False, "quantised caches: the float16 copy came from the pool of the backend, in no figure"),
    Rule("copy_in_compute_buffer", (9300,), True, "ggml-org/llama.cpp PR 23907, May 2026"),
    Rule("unified_by_default", (0,), False, "one slot by default"),
    Rule("unified_by_default", (7100,), True, "ggml-org/llama.cpp: four slots that share one cache, since late 2025"),
    Rule("fit", (0,), False, "nothing is fitted"),
    Rule("fit", (7400,), True, "ggml-org/llama.cpp --fit, since late 2025"),
)  # fmt: skip
