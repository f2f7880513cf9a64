"""kvtax against llama.cpp b11434's own figures: 3,269 contexts of 46 models, 1,248 presets of 39."""

from __future__ import annotations

from collections import defaultdict

import pytest

import kvtax
from kvtax.architectures.gguf import traits
from kvtax.engines.llama_cpp import cache, compute, placement, presets
from kvtax.engines.llama_cpp import inventory as files
from kvtax.engines.llama_cpp.converted import converted
from kvtax.engines.llama_cpp.from_architecture import shape_of
from llama_cpp_rows import file_tensors, lines, preset_bytes, rows, shapes

ROWS = list(rows())
PRESETS = {entry["model"]: entry for entry in lines("presets.jsonl")}
# measured name -> the config of the catalogue; the two Gemma 4 shapes and the tiny models are nobody's
CONFIGS = {
    "llama2-7b": "meta-llama/Llama-2-7b-hf", "llama3.1-8b": "meta-llama/Llama-3.1-8B", "llama3.2-1b": "meta-llama/Llama-3.2-1B",
    "llama3.2-3b": "meta-llama/Llama-3.2-3B", "llama3.1-70b": "meta-llama/Llama-3.1-70B",
    "mistral-small-24b": "mistralai/Mistral-Small-24B-Instruct-2501", "mixtral-8x7b": "mistralai/Mixtral-8x7B-v0.1",
    "qwen2.5-7b": "Qwen/Qwen2.5-7B", "qwen3-0.6b": "Qwen/Qwen3-0.6B", "qwen3-4b": "Qwen/Qwen3-4B", "qwen3-8b": "Qwen/Qwen3-8B",
    "qwen3-14b": "Qwen/Qwen3-14B", "qwen3-30b-a3b": "Qwen/Qwen3-30B-A3B", "qwen3-235b-a22b": "Qwen/Qwen3-235B-A22B",
    "gemma2-9b": "google/gemma-2-9b", "gemma3-270m": "google/gemma-3-270m", "gemma3-4b": "google/gemma-3-4b-it",
    "gemma3-27b": "google/gemma-3-27b-it", "gpt-oss-20b": "openai/gpt-oss-20b", "gpt-oss-120b": "openai/gpt-oss-120b",
    "deepseek-v3": "deepseek-ai/DeepSeek-V3", "deepseek-v2-lite": "deepseek-ai/DeepSeek-V2-Lite",
    "qwen3-next-80b": "Qwen/Qwen3-Next-80B-A3B-Instruct", "qwen3.5-27b": "Qwen/Qwen3.5-27B", "qwen3.5-35b-a3b": "Qwen/Qwen3.5-35B-A3B",
    "nemotron-3-nano-30b": "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "granite-4.0-h-small": "ibm-granite/granite-4.0-h-small",
    "command-r7b": "CohereLabs/c4ai-command-r7b-12-2024", "phi3-mini": "microsoft/Phi-3-mini-4k-instruct",
    "glm-4.5-air": "zai-org/GLM-4.5-Air", "mamba-2.8b": "state-spaces/mamba-2.8b-hf", "jamba-mini-52b": "ai21labs/Jamba-v0.1",
    "kimi-linear-48b": "moonshotai/Kimi-Linear-48B-A3B-Instruct", "falcon-h1-7b": "tiiuae/Falcon-H1-7B-Instruct",
    "lfm2-1.2b": "LiquidAI/LFM2-1.2B", "smollm3-3b": "HuggingFaceTB/SmolLM3-3B", "olmo2-7b": "allenai/OLMo-2-1124-7B",
}  # fmt: skip
# float32 elements that a measured file has and the model has not: rope_freqs of models whose config has no such scaling, norms of query
# and key in GLM-4.5-Air (`use_qk_norm` is false), the head of a classifier in Qwen3
ONLY_IN_FILE = {"granite-4.0-h-small": 64, "glm-4.5-air": 46 * 2 * 128}
# Falcon-H1's config counts 130,049 tokens where the measured file has 130,048
OTHER_SIZES = {"falcon-h1-7b"}


def test_context_slots_and_cells() -> None:
    for row in ROWS:
        assert row.context.n_ctx_effective == row.values["n_ctx"]
        assert row.context.n_ctx_seq == row.values["n_ctx_seq"]


def test_kv_and_state_of_every_row_equal_to_the_byte() -> None:
    assert len(ROWS) == 3269
    for row in ROWS:
        measured = sum(row.bytes("context", place) or 0 for place in ("host", "device"))
        assert cache.context_bytes(row.shape, row.context) == measured, (row.model, row.values)


def test_output_buffer_of_every_row() -> None:
    for row in ROWS:
        assert f"{cache.output_bytes(row.shape, row.context) / 2**20:.2f}" == f"{row.values['output_buffer_mib']:.2f}"


def test_device_compute_buffers_within_five_percent() -> None:
    errors = defaultdict(list)
    for row in ROWS:
        if not row.everything_on_the_device or row.model.startswith("tiny"):
            continue
        device = compute.device_parts(row.shape, row.context).total_bytes
        errors["device"].append(abs(device / (row.bytes("compute", "device") or 1) - 1))
        host = compute.host_bytes(row.shape, row.context)
        errors["host"].append(abs(host / (row.bytes("compute", "host") or 1) - 1))
    assert len(errors["device"]) == 553
    within = {place: sum(error < 0.05 for error in found) / len(found) for place, found in errors.items()}
    assert within["device"] >= 0.99
    assert within["host"] == 1.0
    assert sum(error < 0.001 for error in errors["device"]) >= 500


def test_compute_buffers_where_layers_stay_in_ram() -> None:
    errors = defaultdict(list)
    for row in ROWS:
        if row.everything_on_the_device or not row.values["kv_offload"] or row.model.startswith("tiny"):
            continue
        only_host = row.values["device"] is None or row.values["ngl"] == 0
        host = compute.host_layers_bytes(row.shape, row.context, outputs=only_host)
        errors["host"].append(abs(host / (row.bytes("compute", "host") or 1) - 1))
        if not only_host:
            device = compute.partial_device_bytes(row.shape, row.context)
            errors["device"].append(abs(device / (row.bytes("compute", "device") or 1) - 1))
    assert sum(error < 0.05 for error in errors["host"]) / len(errors["host"]) > 0.9
    assert sum(error < 0.05 for error in errors["device"]) / len(errors["device"]) > 0.8


def test_device_buffers_where_caches_stay_in_ram() -> None:
    errors = [
        abs(compute.device_parts(row.shape, row.context).total_bytes / measured - 1)
        for row in ROWS
        if not row.values["kv_offload"] and (measured := row.bytes("compute", "device"))
    ]
    assert len(errors) == 39
    assert sum(error < 0.05 for error in errors) >= 22
    assert sum(error < 0.1 for error in errors) >= 27


def test_caches_lie_where_their_layers_are() -> None:
    for row in ROWS:
        if row.values["device"] is None or not row.values["kv_offload"]:
            continue
        count = len(row.shape.layers)
        units = count + 1 if row.values["ngl"] == -1 else row.values["ngl"]
        cards = placement.assign(count, units, [1.0])
        for place, card in (("host", placement.HOST), ("device", 0)):
            here = [layer for layer, home in zip(row.shape.layers, cards[:-1], strict=True) if home == card]
            size = sum(cache.layer_bytes(row.shape, layer, row.context) for layer in here)
            assert size == row.bytes("context", place), (row.model, row.values)


def test_weights_lie_where_their_layers_are() -> None:
    """The measured files are Q4_K_M, and so are the buffers, to the byte: tensors at multiples of 32.

    The rows' device is no CUDA card, so that is compared without the padding of CUDA's kernels; RAM as budgets have it.
    """
    weighed = {}
    for model, entry in PRESETS.items():
        shape, tensors = shapes()[model], file_tensors(entry)
        types = presets.tensor_types("q4_k_m", tensors, files.facts(shape))
        twice = shape.arch in traits.EMBEDDED_TWICE
        weighed[model] = [
            placement.weigh(tensors, types, len(shape.layers), padded=padded)._replace(tied_in_ram=twice)
            for padded in (True, False)
        ]
    compared = 0
    for row in ROWS:
        if row.model not in weighed:
            continue
        count = len(row.shape.layers)
        units = count + 1 if row.values["ngl"] == -1 else row.values["ngl"]
        cards = [1.0] if row.values["device"] is not None else []
        for place, card, weights in zip(("host", "device"), (placement.HOST, 0), weighed[row.model], strict=True):
            measured = row.bytes("model", place)
            found = placement.place(weights, placement.assign(count, units, cards)).get(card)
            assert (found.weights_bytes if found else None) == measured, (row.model, place, row.values["ngl"])
            compared += measured is not None
    assert compared > 3500


@pytest.mark.parametrize("model", sorted(PRESETS))
def test_presets_from_gguf_keys(model: str) -> None:
    shape, tensors = shapes()[model], file_tensors(PRESETS[model])
    expected = PRESETS[model]["weight_bytes"]
    assert len(expected) == 32
    assert {preset: preset_bytes(shape, tensors, preset) for preset in expected} == expected


@pytest.mark.parametrize("model", sorted(CONFIGS))
def test_presets_from_a_config(model: str) -> None:
    entry = PRESETS[model]
    architecture = kvtax.architecture(CONFIGS[model])
    shape = shape_of(architecture)
    tensors = converted(architecture, shape)
    tensors += [presets.GgufTensor(kind, tuple(sizes)) for kind, sizes in entry.get("optional", ())]
    if model in OTHER_SIZES:
        shape_ours = shape._replace(vocab_size=shapes()[model].vocab_size)
        tensors = [
            tensor._replace(shape=(tensor.shape[0], shape_ours.vocab_size))
            if tensor.kind in ("token_embd", "output")
            else tensor
            for tensor in tensors
        ]
        tensors.append(presets.GgufTensor("rope_freqs", (entry["rope_factors"],)))
    more = 4 * ONLY_IN_FILE.get(model, 0)
    for preset, size in entry["weight_bytes"].items():
        assert preset_bytes(shape, tensors, preset) + more == size, preset


@pytest.mark.parametrize("model", sorted(CONFIGS))
def test_caches_from_a_config(model: str) -> None:
    """KV and state of the measured contexts, from the config instead of the file's keys."""
    shape = shape_of(kvtax.architecture(CONFIGS[model]))
    seen = set()
    for row in ROWS:
        if row.model == model and row.context not in seen:
            seen.add(row.context)
            assert cache.context_bytes(shape, row.context) == cache.context_bytes(row.shape, row.context), row.values
    assert seen
