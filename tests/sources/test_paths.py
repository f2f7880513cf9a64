"""Models by path: folders, single files, split files, what lies beside them, and what is never opened."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

import kvtax
from gguf_files import TensorOf, gguf_bytes, write_gguf
from kvtax.errors import KvtaxError
from kvtax.sources.resolve import find
from loopback_hub import LazyFile, checkpoint, repository_from_checkpoint
from stores import layer, write_manifest

SMALL = "Qwen--Qwen2.5-0.5B.json"
KEYS = {
    "general.architecture": "llama", "general.file_type": 15, "llama.block_count": 2, "llama.context_length": 4096,
    "llama.embedding_length": 256, "llama.feed_forward_length": 512, "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2, "llama.vocab_size": 320,
}  # fmt: skip
TENSORS = [
    TensorOf("token_embd.weight", (256, 320), "q6_k"),
    TensorOf("output_norm.weight", (256,)),
    *(
        TensorOf(f"blk.{block}.{name}.weight", shape, dtype)
        for block in (0, 1)
        for name, shape, dtype in (
            ("attn_q", (256, 256), "q4_k"), ("attn_k", (256, 128), "q4_k"), ("attn_v", (256, 128), "q6_k"),
            ("attn_output", (256, 256), "q4_k"), ("ffn_gate", (256, 512), "q4_k"), ("ffn_up", (256, 512), "q4_k"),
            ("ffn_down", (512, 256), "q6_k"), ("attn_norm", (256,), "float32"), ("ffn_norm", (256,), "float32"),
        )
    ),
]  # fmt: skip
TENSOR_BYTES = sum(tensor.bytes for tensor in TENSORS)


def put(folder: Path, files: dict[str, object]) -> Path:
    """Files of a repository on this disk; lazy ones are sparse."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, LazyFile):
            with path.open("wb") as file:
                file.write(content.header)
                file.truncate(content.size)
        else:
            path.write_bytes(bytes(content))  # type: ignore[call-overload]
    return folder


def code_of(model: str) -> str:
    with pytest.raises(KvtaxError) as caught:
        find(model)
    assert "\n" not in str(caught.value)
    return caught.value.code


@pytest.mark.parametrize("shards", [1, 3])
def test_a_folder_with_its_weights(tmp_path, shards):
    folder = put(tmp_path / "model", repository_from_checkpoint(SMALL, shards=shards).files)
    model = find(str(folder))
    assert model.architecture.checkpoint_bytes == checkpoint(SMALL)["bytes"]
    assert model.weights_source == ("header of model.safetensors" if shards == 1 else "headers of 3 safetensors files")
    one = next(path for path in sorted(folder.iterdir()) if path.suffix == ".safetensors")
    assert find(str(one)).architecture.checkpoint_bytes == checkpoint(SMALL)["bytes"]
    assert find(str(folder / "config.json")).weights_source == "worked out from config.json"


def test_a_shard_that_is_missing_leaves_the_config_to_count(tmp_path):
    folder = put(tmp_path, repository_from_checkpoint(SMALL, shards=3).files)
    (folder / "model-00002-of-00003.safetensors").unlink()
    model = find(str(folder))
    assert model.weights_source == "worked out from config.json"
    assert "weights-incomplete" in {notice.code for notice in model.notices}


def test_pickled_weights_are_counted_by_size_and_never_opened(tmp_path, monkeypatch):
    files = {
        "config.json": json.dumps(checkpoint(SMALL)["config"]).encode(),
        "pytorch_model.bin": LazyFile(2 * 10**9, b"PK"),
    }
    folder = put(tmp_path, files)
    (folder / "pytorch_model.bin").chmod(0)
    model = find(str(folder))
    assert {"weights-by-size", "sizes-differ"} <= {notice.code for notice in model.notices}
    assert code_of(str(folder / "pytorch_model.bin")) == "never-opened"


def test_generation_limits_and_the_pooling_runner(tmp_path):
    files = {
        "config.json": json.dumps(checkpoint(SMALL)["config"]).encode(),
        "generation_config.json": b'{"max_new_tokens": 2048, "max_length": true, "temperature": 0.6}',
        "modules.json": b"[]",
    }
    model = find(str(put(tmp_path, files)))
    assert (dict(model.limits), model.runner) == ({"max_new_tokens": 2048}, "pooling")


@pytest.mark.parametrize(
    ("file", "section", "bits"),
    [
        ("quantize_config.json", {"bits": 4, "group_size": 128, "desc_act": False, "sym": True}, 4),
        ("quant_config.json", {"w_bit": 4, "q_group_size": 128, "zero_point": True, "version": "GEMM"}, 4),
        ("hf_quant_config.json", {"quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}}, 8),
    ],
)
def test_a_quantisation_in_a_file_of_its_own(tmp_path, file, section, bits):
    config = json.dumps(checkpoint("meta-llama--Meta-Llama-3-8B.json")["config"]).encode()
    model = find(str(put(tmp_path, {"config.json": config, file: json.dumps(section).encode()})))
    assert model.architecture.quantization is not None
    assert model.architecture.quantization.bits == bits


def test_folders_that_are_no_model_say_what_they_are(tmp_path):
    for name, file, says in (
        ("adapter", "adapter_config.json", "adapter"), ("diffusion", "model_index.json", "diffus"), ("words", "tokenizer.json", "tokenizer"),
    ):  # fmt: skip
        folder = put(tmp_path / name, {file: b"{}"})
        with pytest.raises(KvtaxError, match=says) as caught:
            find(str(folder) + "/")
        assert caught.value.code == "no-config"


# ---- GGUF ----


def test_a_gguf_file(tmp_path):
    path = write_gguf(tmp_path / "small-Q4_K_M.gguf", KEYS, TENSORS)
    budget = kvtax.budget(model=str(path), vram="24GiB", max_model_len=4096)
    document = budget.to_dict()
    assert document["engine"]["name"] == "llama.cpp"
    assert document["deployment"]["quantization"] == "q4_k_m"
    assert document["model"]["checkpoint_bytes"] == TENSOR_BYTES
    embedding, output = TENSORS[0].bytes, TENSORS[0].bytes
    assert document["host"]["weights_bytes"] == embedding
    tied = TENSOR_BYTES - embedding + output  # once in RAM, once on the card
    assert 0 <= document["per_gpu"]["weights_bytes"] - tied < 256 * len(TENSORS)  # CUDA pads rows of 256 to 512
    assert document["per_gpu"]["kv_pool_bytes"] == 2 * 2 * 2 * 64 * 2 * 4096


def test_a_split_file_with_a_projector_beside_it(tmp_path):
    half = len(TENSORS) // 2
    for number, part in ((0, TENSORS[:half]), (1, TENSORS[half:])):
        keys = (KEYS if number == 0 else {}) | {
            "split.no": number,
            "split.count": 2,
            "split.tensors.count": len(TENSORS),
        }
        write_gguf(tmp_path / f"small-Q4_K_M-0000{number + 1}-of-00002.gguf", keys, part)
    write_gguf(
        tmp_path / "mmproj-F16.gguf", {"general.architecture": "clip"}, [TensorOf("v.weight", (64, 64), "float16")]
    )
    for name in ("small-Q4_K_M-00001-of-00002.gguf", "small-Q4_K_M-00002-of-00002.gguf"):
        model = find(str(tmp_path / name))
        assert model.architecture.checkpoint_bytes == TENSOR_BYTES
        assert model.weights_source == "headers of 2 GGUF shards"
        assert model.settings["mmproj_bytes"] == (tmp_path / "mmproj-F16.gguf").stat().st_size
    assert find(str(tmp_path)).architecture.checkpoint_bytes == TENSOR_BYTES
    assert code_of(str(tmp_path / "mmproj-F16.gguf")) == "gguf-projector"
    (tmp_path / "small-Q4_K_M-00002-of-00002.gguf").unlink()
    assert code_of(str(tmp_path / "small-Q4_K_M-00001-of-00002.gguf")) == "unreadable-file"


def test_a_folder_of_several_quantisations(tmp_path):
    write_gguf(tmp_path / "small-Q4_K_M.gguf", KEYS, TENSORS)
    write_gguf(
        tmp_path / "small-Q8_0.gguf",
        KEYS,
        [one._replace(dtype="q8_0") if len(one.shape) > 1 else one for one in TENSORS],
    )
    assert code_of(str(tmp_path)) == "ambiguous-quantization"
    assert find(f"{tmp_path}:q8_0").architecture.gguf.label == "Q8_0"
    assert code_of(f"{tmp_path}:Q2_K") == "unknown-quantization"


@pytest.mark.parametrize(
    "engine", ["vllm", "sglang", "transformers", "tensorrt-llm", "lmdeploy", "tgi", "ollama", "lm-studio"]
)
def test_a_gguf_file_in_every_engine(tmp_path, engine):
    path = write_gguf(tmp_path / "small-Q4_K_M.gguf", KEYS, TENSORS)
    budget = kvtax.budget(model=str(path), gpu="rtx-4090", engine=engine, max_model_len=2048)
    codes = {notice.code for notice in budget.notices}
    if engine in ("tensorrt-llm", "lmdeploy", "tgi"):
        assert budget.verdict == "refused"
        assert "gguf-not-in-engine" in codes
    elif engine in ("ollama", "lm-studio"):
        assert budget.verdict == "fits"
    else:
        assert "gguf-in-engine" in codes
        expected = 2 * budget.prepared.architecture.parameters if engine == "transformers" else TENSOR_BYTES
        assert budget.to_dict()["per_gpu"]["weights_bytes"] == expected


def test_another_quantisation_than_the_files_is_refused(tmp_path):
    path = write_gguf(tmp_path / "small-Q4_K_M.gguf", KEYS, TENSORS)
    assert kvtax.budget(model=str(path), gpu="rtx-4090", quantization="Q4_K_M").verdict == "fits"
    with pytest.raises(KvtaxError) as caught:
        kvtax.budget(model=str(path), gpu="rtx-4090", quantization="q8_0")
    assert caught.value.code == "quantization-of-file"


def test_ollamas_store(tmp_path, monkeypatch):
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path))
    layers = [
        layer(tmp_path, "model", gguf_bytes(KEYS, TENSORS)),
        layer(tmp_path, "params", json.dumps({"num_ctx": 2048}).encode()),
        layer(tmp_path, "projector", gguf_bytes({"general.architecture": "clip"})),
    ]
    write_manifest(tmp_path, layers)
    budget = kvtax.budget(model="ollama:llama3.1:8b", gpu="rtx-4090")
    document = budget.to_dict()
    assert (document["engine"]["name"], document["concurrency"]["at_context"]) == ("ollama", 2048)
    assert document["model"]["checkpoint_bytes"] == TENSOR_BYTES
    assert budget.prepared.question.deployment.mmproj_bytes
    assert kvtax.budget(model="ollama:llama3.1:8b", gpu="rtx-4090", max_model_len=1024).max_model_len == 1024
    assert code_of("ollama:llama3.1:70b") == "unknown-model"


def test_a_model_that_changes_on_the_disk_is_read_again(tmp_path):
    path = write_gguf(tmp_path / "small.gguf", KEYS, TENSORS)
    first = find(str(path)).architecture.checkpoint_bytes
    write_gguf(path, KEYS, [*TENSORS, TensorOf("output.weight", (256, 320), "q6_k")])
    assert (find(str(path)).architecture.checkpoint_bytes or 0) > (first or 0)


def test_a_gguf_file_under_any_name_is_one_for_llama_cpp(tmp_path):
    folder = tmp_path / "my-model"
    folder.mkdir()
    write_gguf(folder / "small-Q4_K_M.gguf", KEYS, TENSORS)
    assert kvtax.budget(model=f"{folder}/", gpu="rtx-4090").deployment.engine == "llama.cpp"
    assert kvtax.budget(model=f"{folder}/", gpu="rtx-4090", engine="vllm").deployment.engine == "vllm"


def test_budgets_follow_the_files(tmp_path):
    path = write_gguf(tmp_path / "small.gguf", KEYS, TENSORS)
    fields = {"model": str(path), "gpu": "rtx-4090", "max_model_len": 1024}
    first = kvtax.budget(**fields).to_dict()["model"]["checkpoint_bytes"]
    write_gguf(path, KEYS, [*TENSORS, TensorOf("output.weight", (256, 320), "q6_k")])
    assert kvtax.budget(**fields).to_dict()["model"]["checkpoint_bytes"] > first
    (tmp_path / "config.json").write_text(json.dumps(checkpoint(SMALL)["config"]))
    fields["model"] = str(tmp_path / "config.json")
    assert kvtax.budget(**fields).to_dict()["model"]["parameters"] > 10**8
    (tmp_path / "config.json").write_text(json.dumps({**checkpoint(SMALL)["config"], "num_hidden_layers": 2}))
    assert kvtax.budget(**fields).prepared.architecture.num_hidden_layers == 2


def test_another_checkpoint_than_the_files_is_said_to_be_one(tmp_path):
    folder = put(tmp_path / "model", repository_from_checkpoint(SMALL, shards=1).files)
    plain = kvtax.budget(model=str(folder), gpu="l4", max_model_len=2048).to_dict()
    other = kvtax.budget(model=str(folder), gpu="l4", max_model_len=2048, quantization="fp8").to_dict()
    assert plain["model"]["weights_source"] == "header of model.safetensors"
    assert other["model"]["weights_source"] == "worked out from config.json: a checkpoint in fp8"
    assert "headers-set-aside" in {notice["code"] for notice in other["notices"]}
    assert {
        term["inputs"]["elements_bfloat16"]["origin"]
        for term in plain["terms"]
        if "elements_bfloat16" in term["inputs"]
    } == {"headers of the files, one of 1 ranks"}


def test_files_in_float32_run_in_the_models_dtype(tmp_path):
    from loopback_hub import LazyFile as Lazy
    from safetensors_files import build

    config = checkpoint(SMALL)["config"]
    tensors = []
    for one in kvtax.architecture(config).stored_tensors():
        for index in one.source.layers or (0,):
            tensors.append((one.name.replace("*", str(index)), "F32", one.shape))
    header, size = build(tensors)
    folder = put(tmp_path, {"config.json": json.dumps(config).encode(), "model.safetensors": Lazy(size, header)})
    budget = kvtax.budget(model=str(folder), gpu="l4", max_model_len=2048)
    assert budget.weights_bytes == checkpoint(SMALL)["bytes"]
    said = next(notice.message for notice in budget.notices if notice.code == "headers-differ")
    assert "float32 and run in bfloat16" in said


def test_a_projector_is_spoken_of_where_it_counts(tmp_path):
    path = write_gguf(tmp_path / "small-Q4_K_M.gguf", KEYS, TENSORS)
    write_gguf(
        tmp_path / "mmproj-F16.gguf", {"general.architecture": "clip"}, [TensorOf("v.weight", (64, 64), "float16")]
    )
    for engine, spoken in (("llama.cpp", True), ("vllm", False), ("transformers", False)):
        budget = kvtax.budget(model=str(path), gpu="rtx-4090", engine=engine, max_model_len=2048)
        assert ("mmproj-beside" in {notice.code for notice in budget.notices}) is spoken


def test_a_draft_that_nothing_is_called_is_an_error():
    for name, code in (("nope", "unknown-model"), ("./nope/", "unreadable-file")):
        with pytest.raises(KvtaxError) as caught:
            kvtax.budget(model="llama-3-8b", gpu="a100-80", speculative=f"draft:5:{name}")
        assert caught.value.code == code


def test_an_index_is_no_config(tmp_path):
    put(tmp_path, repository_from_checkpoint(SMALL, shards=2).files)
    assert code_of(str(tmp_path / "model.safetensors.index.json")) == "no-config"


def test_files_of_another_model_are_no_budget(tmp_path):
    from safetensors_files import build

    for number, tensors in enumerate(([], [("model.norm.weight", "BF16", (896,))], [("foo", "F32", (50,))])):
        header, size = build(tensors)
        config = json.dumps(checkpoint(SMALL)["config"]).encode()
        folder = put(tmp_path / str(number), {"config.json": config, "model.safetensors": LazyFile(size, header)})
        assert code_of(str(folder)) == "files-inconsistent"


def test_one_tensor_in_two_files_is_an_error(tmp_path):
    files = repository_from_checkpoint(SMALL, shards=1).files
    twice = {"config.json": files["config.json"]}
    for number in (1, 2):
        twice[f"model-0000{number}-of-00002.safetensors"] = files["model.safetensors"]
    assert code_of(str(put(tmp_path, twice))) == "duplicate-tensor"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs here")
def test_what_is_no_regular_file_is_neither_read_nor_replaced(tmp_path):
    from kvtax.sources.write_whole import write_whole

    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="no regular file"):
        write_whole(str(pipe), b"x")
    with pytest.raises(OSError, match="no regular file"):
        write_whole(str(tmp_path), b"x")
    assert stat.S_ISFIFO(pipe.stat().st_mode)
