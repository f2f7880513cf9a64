"""GGUF files of the models that llama.cpp measured: written in code, read by header, and compared with its own figures to the byte."""

from __future__ import annotations

import pytest

import kvtax
from gguf_files import TensorOf, gguf_bytes, gguf_header
from kvtax.architectures.architecture import Architecture
from kvtax.architectures.gguf.model import read_model
from kvtax.architectures.gguf.tensor import GgufTensor
from kvtax.engines.llama_cpp import inventory, placement, presets
from kvtax.engines.llama_cpp.weights import real_file
from kvtax.errors import ConfigError, KvtaxError, UnsupportedArchitectureError
from kvtax.sources.byte_source import BytesInMemory
from kvtax.sources.gguf import read_gguf
from llama_cpp_rows import file_tensors, lines, shapes

ENTRIES = {entry["model"]: entry for entry in lines("presets.jsonl")}
HPARAMS = {entry["model"]: entry for entry in lines("measured.jsonl")}


def name_of(tensor: GgufTensor) -> str:
    last = (
        tensor.kind if tensor.kind.endswith(".bias") or tensor.kind in ("ssm_a", "ssm_d") else f"{tensor.kind}.weight"
    )
    return f"blk.{tensor.layer}.{last}" if tensor.layer >= 0 else last


def types_of(model: str, preset: str) -> list[str]:
    return presets.tensor_types(
        presets.find_preset(preset), file_tensors(ENTRIES[model]), inventory.facts(shapes()[model])
    )


def keys_of(model: str) -> dict[str, object]:
    entry = HPARAMS[model]
    keys = {f"{entry['arch']}.{key}": value for key, value in entry["hparams"].items()}
    return {"general.architecture": entry["arch"], "general.file_type": 15, **keys}


def header_only(model: str, preset: str) -> Architecture:
    found = [
        TensorOf(name_of(tensor), tensor.shape, dtype)
        for tensor, dtype in zip(file_tensors(ENTRIES[model]), types_of(model, preset), strict=True)
    ]
    header = gguf_header(keys_of(model), found)
    file = read_gguf(Sparse(header, len(header) + sum(-(-one.bytes // 32) * 32 for one in found)))
    return read_model(file.keys, file.lengths, file.tensors, preset)


class Sparse:
    """A file of full size whose weights are all zero."""

    def __init__(self, header: bytes, size: int) -> None:
        self.header, self.size, self.name = header, size, "sparse.gguf"

    def read(self, start: int, length: int) -> bytes:
        return self.header[start : start + length].ljust(max(0, min(length, self.size - start)), b"\0")


@pytest.mark.parametrize("model", sorted(ENTRIES))
def test_weights_and_shape_are_llama_cpps_own(model: str) -> None:
    for preset in ("Q4_K_M", "IQ2_XXS", "Q8_0"):
        architecture = header_only(model, preset)
        assert architecture.checkpoint_bytes == ENTRIES[model]["weight_bytes"][preset.lower()]
        assert architecture.gguf is not None
        assert architecture.gguf.shape == shapes()[model]
        assert architecture.gguf.label == preset
        file = real_file(architecture.gguf)
        expected = placement.weigh(
            file_tensors(ENTRIES[model]), types_of(model, preset), len(shapes()[model].layers), padded=True
        )
        assert file.weights == expected._replace(tied_in_ram=file.weights.tied_in_ram)


@pytest.mark.parametrize("model", sorted(ENTRIES))
def test_keys_and_values_are_those_of_the_shape(model: str) -> None:
    """16-bit keys and values of 4,096 tokens by the architecture's caches, beside the layers of the shape."""
    architecture = header_only(model, "Q4_K_M")
    shape, tokens = shapes()[model], 4096
    if shape.arch == "deepseek4":
        return
    held = 0
    for layer in shape.layers:
        if layer.attends:
            kept = min(tokens, shape.sliding_window) if layer.windowed and shape.windowed else tokens
            held += 2 * kept * (layer.key_width + layer.value_width)
    indexed = sum(layer.indexer_length > 0 for layer in shape.layers if layer.attends)
    state = architecture.state_bytes()
    assert architecture.kv_bytes(tokens, "float16") - state == held + indexed * tokens * 132


def test_a_projector_and_a_vocabulary_are_no_model() -> None:
    for keys, code in (
        ({"general.architecture": "clip"}, "gguf-projector"),
        ({"general.architecture": "llama"}, "gguf-no-tensors"),
    ):
        with pytest.raises(ConfigError) as caught:
            read_model(keys, {}, ())
        assert caught.value.code == code


def test_an_unknown_architecture_says_its_weights() -> None:
    file = read_gguf(
        BytesInMemory(gguf_bytes({"general.architecture": "no-such"}, [TensorOf("output.weight", (32, 4))]))
    )
    with pytest.raises(UnsupportedArchitectureError) as caught:
        read_model(file.keys, file.lengths, file.tensors)
    assert "512 bytes" in caught.value.hint


def test_blocks_that_are_missing_are_an_error() -> None:
    keys = keys_of("llama3.2-1b")
    tensors = [TensorOf("token_embd.weight", (32, 4)), TensorOf("blk.0.attn_q.weight", (32, 4))]
    file = read_gguf(BytesInMemory(gguf_bytes(keys, tensors)))
    with pytest.raises(ConfigError) as caught:
        read_model(file.keys, file.lengths, file.tensors)
    assert caught.value.code == "gguf-inconsistent"


# ---- caches that the keys of an architecture make, worked out by hand from src/models/*.cpp of b11434 ----

TOKENS = 4096
LATENT = {
    "kda.head_dim": 128, "ssm.conv_kernel": 4, "attention.key_length_mla": 192, "attention.value_length_mla": 128,
    "attention.kv_lora_rank": 512, "attention.key_length": 576, "attention.value_length": 512, "attention.head_count_kv": [0, 0, 0, 1],
}  # fmt: skip
DELTA_STATES = 3 * 4 * (3 * 3 * 16 * 128 + 128 * 128 * 16)
HEADS = {"attention.key_length": 128, "attention.value_length": 128}
FULL = 4 * TOKENS * 2 * 2 * 4 * 128
MAMBA = {
    "ssm.conv_kernel": 4,
    "ssm.inner_size": 2048,
    "ssm.state_size": 128,
    "ssm.group_count": 8,
    "ssm.time_step_rank": 16,
}
POOLED = {**HEADS, **MAMBA, "attention.indexer.key_length": 128, "attention.compress_ratios": [0, 0, 0, 32]}
CASES = [
    ("dream", 4, {}, 0), ("llada", 4, {}, 0), ("llada-moe", 4, {}, 0), ("rnd1", 4, {}, 0), ("bert", 4, {}, 0),
    *((arch, 4, LATENT, TOKENS * 576 * 2 + DELTA_STATES) for arch in ("kimi-linear", "kimi-k3", "bailingmoe3")),
    ("glm5-next", 4, {**LATENT, "attention.indexer.key_length": 128, "attention.indexer.kpool": 4}, TOKENS * (576 + 384) * 2 + DELTA_STATES),
    ("minimax-01", 8, HEADS, TOKENS * 2 * 2 * 4 * 128 + 7 * 4 * 128 * 128 * 16),
    ("minimax-01", 8, {**HEADS, "full_attention_interval": 8}, TOKENS * 2 * 2 * 4 * 128 + 7 * 4 * 128 * 128 * 16),
    ("minimax-m3", 4, {**HEADS, "attention.indexer.key_length": 128, "leading_dense_block_count": 1}, FULL + 3 * TOKENS * 256),
    ("qwen4exp", 4, POOLED, TOKENS * (2 * 512 * 2 + 256 * 2) + 3 * 4 * (3 * (2048 + 2 * 8 * 128) + 128 * 2048)),
    ("granite_swa", 4, {}, FULL), ("hunyuan_vl", 4, {}, FULL), ("llama", 4, {"feed_forward_length": [4096, 0, 4096, 2048]}, FULL),
    ("rwkv7", 4, {"wkv.head_size": 64, "attention.head_count": 0, "attention.head_count_kv": 0}, 4 * 4 * (2 * 2048 + 2048 * 64)),
    ("deepseek2", 4, {"attention.key_length": 192, "attention.value_length": 128, "attention.kv_lora_rank": 512, "attention.head_count_kv": 16},
     TOKENS * 4 * 16 * 320 * 2),
    ("deci", 4, {"attention.head_count_kv": [4, 0, 4, 2], "attention.head_count": [16, 0, 16, 16]}, TOKENS * 2 * 2 * 128 * (4 + 4 + 2)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("arch", "blocks", "keys", "expected"), CASES, ids=[f"{case[0]}-{index}" for index, case in enumerate(CASES)]
)
def test_what_a_context_of_4096_keeps(tmp_path, arch, blocks, keys, expected):
    usual = {
        "block_count": blocks, "context_length": 8192, "embedding_length": 2048, "feed_forward_length": 4096, "attention.head_count": 16,
        "attention.head_count_kv": 4, "vocab_size": 320,
    }  # fmt: skip
    tensors = [TensorOf("token_embd.weight", (2048, 320), "float16")]
    tensors += [TensorOf(f"blk.{block}.attn_norm.weight", (2048,)) for block in range(blocks)]
    path = tmp_path / "model.gguf"
    path.write_bytes(
        gguf_bytes(
            {"general.architecture": arch, **{f"{arch}.{key}": value for key, value in {**usual, **keys}.items()}},
            tensors,
        )
    )
    budget = kvtax.budget(model=str(path), engine="llama.cpp", gpu="h200", n_ctx=TOKENS, n_parallel=1)
    assert budget.kv_pool_bytes == expected


HONEST = {
    "block_count": 2, "context_length": 8192, "embedding_length": 256, "feed_forward_length": 512, "attention.head_count": 8,
    "attention.head_count_kv": 2, "vocab_size": 320,
}  # fmt: skip
LIES = [
    {"attention.head_count_kv": 1},
    {"attention.head_count_kv": 7},
    {"attention.head_count_kv": 64},
    {"attention.head_count": 2**40},
    {"attention.head_count": 0},
    {"attention.key_length": 0, "attention.value_length": 0},
    {"embedding_length": 0},
    {"embedding_length": 64},
    {"attention.head_count_kv": [0, 0]},
    {"attention.head_count_kv": [2, 2**63]},
    {"attention.recurrent_layers": [True, True]},
    {"attention.shared_kv_layers": 2},
    {"full_attention_interval": 2**40},
    {"nextn_predict_layers": 1},
    {"block_count": 3},
    {"block_count": 1},
]


@pytest.mark.parametrize("lie", LIES, ids=str)
def test_keys_that_contradict_the_tensors_are_no_budget(lie):
    tensors = [TensorOf("token_embd.weight", (256, 320), "float16")]
    for block in range(2):
        tensors += [
            TensorOf(f"blk.{block}.attn_{name}.weight", (256, rows), "float16")
            for name, rows in (("q", 256), ("k", 64), ("v", 64))
        ]

    def read(values):
        return read_model(
            {"general.architecture": "llama", **{f"llama.{key}": value for key, value in values.items()}}, {}, tensors
        )

    assert read(HONEST).kv_bytes_per_token() == 2 * 2 * 2 * 64
    with pytest.raises(KvtaxError) as caught:
        read(HONEST | lie)
    assert caught.value.code in ("gguf-inconsistent", "invalid-gguf")
