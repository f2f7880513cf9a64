"""What a folder or a repository is, by names and sizes: the layouts that are really published."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtax.errors import ConfigError
from kvtax.sources.folder import FORMATS, Contents, scan, sort_files


def shards(stem: str, count: int, ending: str = ".safetensors", size: int = 10) -> dict[str, int | None]:
    return {f"{stem}-{number:05d}-of-{count:05d}{ending}": size for number in range(1, count + 1)}


BESIDE: dict[str, int | None] = {
    "config.json": 1,
    "generation_config.json": 1,
    "tokenizer.json": 9,
    "tokenizer_config.json": 1,
    "README.md": 1,
}
INDEX: dict[str, int | None] = {"model.safetensors.index.json": 5}
LLAMA = BESIDE | INDEX | shards("model", 4) | {
    "original/consolidated.00.pth": 40, "original/params.json": 1, "original/tokenizer.model": 1,
}  # fmt: skip
MISTRAL_TWICE = (
    BESIDE | INDEX | shards("model", 3) | {"consolidated.safetensors": 30, "params.json": 1, "tekken.json": 1}
)
MISTRAL_ONLY: dict[str, int | None] = (
    {"params.json": 1, "tekken.json": 1} | shards("consolidated", 2) | {"consolidated.safetensors.index.json": 1}
)
GPT2 = BESIDE | {
    "model.safetensors": 548, "pytorch_model.bin": 551, "tf_model.h5": 498, "flax_model.msgpack": 497, "rust_model.ot": 702,
    "64.tflite": 125, "onnx/decoder_model.onnx": 653,
}  # fmt: skip
GPT_OSS = BESIDE | INDEX | shards("model", 3, size=4) | {
    "original/model.safetensors": 13, "original/config.json": 1, "metal/model.bin": 13, "original/dtypes.json": 1,
}  # fmt: skip
BERT_BASE = BESIDE | {"pytorch_model.bin": 440, "coreml/model.mlmodel": 165}
TRAINED = BESIDE | shards("pytorch_model", 2, ".bin") | {
    "training_args.bin": 1, "optimizer.pt": 80, "scheduler.pt": 1, "rng_state.pth": 1, "rng_state_0.pth": 1, "trainer_state.json": 1,
    "pytorch_model.bin.index.json": 1, "scaler.pt": 1,
}  # fmt: skip
VARIANTS = BESIDE | {"model.safetensors": 40, "model.fp16.safetensors": 20}
MINILM = BESIDE | {
    "model.safetensors": 90, "pytorch_model.bin": 91, "modules.json": 1, "sentence_bert_config.json": 1, "1_Pooling/config.json": 1,
    "2_Dense/model.safetensors": 3, "onnx/model.onnx": 90,
}  # fmt: skip
DIFFUSERS: dict[str, int | None] = {
    "model_index.json": 1, "unet/config.json": 1, "unet/diffusion_pytorch_model.safetensors": 9, "sd_xl_base_1.0.safetensors": 9,
}  # fmt: skip
LORA: dict[str, int | None] = {
    "adapter_config.json": 1,
    "adapter_model.safetensors": 2,
    "tokenizer.json": 9,
    "training_args.bin": 1,
}
META: dict[str, int | None] = {
    "params.json": 1,
    "consolidated.00.pth": 15,
    "consolidated.01.pth": 15,
    "tokenizer.model": 1,
}
MTP_BESIDE = BESIDE | shards("model", 2) | {"mtp.safetensors": 3}
GGUF_REPOSITORY: dict[str, int | None] = {
    "README.md": 1,
    "config.json": 1,
    "Q8_0/m-Q8_0.gguf": 8,
    "m-Q4_K_M.gguf": 4,
    "mmproj-F16.gguf": 1,
}


@pytest.mark.parametrize(
    ("files", "kind", "weights_format", "names", "size"),
    [
        (LLAMA, "model", "safetensors", list(shards("model", 4)), 40),
        (MISTRAL_TWICE, "model", "safetensors", list(shards("model", 3)), 30),
        (MISTRAL_ONLY, "mistral", "safetensors", list(shards("consolidated", 2)), 20),
        ({"params.json": 1, "consolidated.safetensors": 7}, "mistral", "safetensors", ["consolidated.safetensors"], 7),
        (GPT2, "model", "safetensors", ["model.safetensors"], 548),
        (GPT_OSS, "model", "safetensors", list(shards("model", 3)), 12),
        (BERT_BASE, "model", "torch", ["pytorch_model.bin"], 440),
        (TRAINED, "model", "torch", list(shards("pytorch_model", 2, ".bin")), 20),
        (VARIANTS, "model", "safetensors", ["model.safetensors"], 40),
        (MINILM, "model", "safetensors", ["model.safetensors"], 90),
        (META, "mistral", "torch", ["consolidated.00.pth", "consolidated.01.pth"], 30),
        (MTP_BESIDE, "model", "safetensors", list(shards("model", 2)), 20),
        (BESIDE, "config", "", [], None),
        (LORA, "adapter", "", [], None),
        (GGUF_REPOSITORY, "model", "gguf", [], None),
        ({"m-Q4_K_M.gguf": 4, "README.md": 1}, "gguf", "gguf", [], None),
        ({"tokenizer.json": 1, "vocab.json": 1}, "tokenizer", "", [], None),
        ({"optimizer.pt": 1, "training_args.bin": 1}, "training", "", [], None),
        ({"my-finetune.safetensors": 4}, "weights", "safetensors", ["my-finetune.safetensors"], 4),
        (BESIDE | {"a.safetensors": 4, "b.safetensors": 5}, "model", "safetensors", ["a.safetensors", "b.safetensors"], 9),
        (BESIDE | {"tf_model.h5": 4}, "model", "tensorflow", ["tf_model.h5"], 4),
        (BESIDE | {"flax_model.msgpack": 4, "m-Q4_0.gguf": 2}, "model", "gguf", [], None),
        (BESIDE | {"model.safetensors": None}, "model", "safetensors", ["model.safetensors"], None),
        ({"notes.txt": 1}, "other", "", [], None),
        ({}, "empty", "", [], None),
    ],
)  # fmt: skip
def test_which_files_are_the_model(
    files: dict[str, int | None], kind: str, weights_format: str, names: list[str], size: int | None
) -> None:
    found = sort_files(files)
    assert (found.kind, found.format, list(found.weights), found.bytes) == (kind, weights_format, names, size)
    assert not found.missing
    assert found.what


def test_a_diffusers_folder_is_called_one() -> None:
    assert sort_files(DIFFUSERS).kind == "diffusers"
    assert "model_index.json" in sort_files(DIFFUSERS).what


def test_what_is_left_out() -> None:
    assert sort_files(MISTRAL_TWICE).left_out == ("consolidated.safetensors",)
    assert set(sort_files(GPT2).left_out) == {"pytorch_model.bin", "tf_model.h5", "flax_model.msgpack", "rust_model.ot"}
    assert sort_files(TRAINED).left_out == ()
    assert sort_files(MTP_BESIDE).left_out == ("mtp.safetensors",)


def test_the_index_decides() -> None:
    files = MTP_BESIDE | INDEX
    assert sort_files(files).needs_index
    found = sort_files(files, ["mtp.safetensors", *shards("model", 2), *shards("model", 2)])
    assert found.weights == (*shards("model", 2), "mtp.safetensors")
    assert (found.bytes, found.needs_index, found.left_out) == (23, False, ())
    assert sort_files(files, ["model-00001-of-00002.safetensors", "gone.safetensors"]).missing == ("gone.safetensors",)
    assert sort_files(MISTRAL_ONLY).index_file == "consolidated.safetensors.index.json"


def test_a_missing_shard_is_named() -> None:
    files = {name: size for name, size in LLAMA.items() if "00003" not in name}
    assert sort_files(files).missing == ("model-00003-of-00004.safetensors",)
    zero = {f"model-{number:05d}-of-00003.safetensors": 1 for number in (0, 2)}
    assert sort_files(zero).missing == ("model-00001-of-00003.safetensors",)


def test_configs_are_listed() -> None:
    found = sort_files(MINILM | {"hf_quant_config.json": 1, "quantize_config.json": 1})
    assert found.configs == (
        "config.json",
        "hf_quant_config.json",
        "quantize_config.json",
        "generation_config.json",
        "modules.json",
    )
    assert found.sentence_transformers
    assert not sort_files(LLAMA).sentence_transformers


def write(folder: Path, files: dict[str, int | None]) -> None:
    for name, size in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * (size or 0))


def test_a_scan_sees_what_the_listing_says(tmp_path: Path) -> None:
    write(tmp_path, MINILM)
    assert scan(str(tmp_path)) == sort_files(MINILM)


def test_a_scan_goes_one_folder_down_for_gguf(tmp_path: Path) -> None:
    write(tmp_path, GGUF_REPOSITORY | {"a/b/m-Q2_K.gguf": 1, ".cache/m-Q3_K_M.gguf": 1})
    found = scan(str(tmp_path))
    assert [(choice.label, choice.bytes) for choice in found.gguf.choices] == [("Q4_K_M", 4), ("Q8_0", 8)]
    assert found.gguf.projectors == ("mmproj-F16.gguf",)


@pytest.mark.skipif(sys.platform == "win32", reason="the cache holds copies there")
def test_a_snapshot_of_the_hub_cache_is_links(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots"
    write(blobs, {"aa": 7, "bb": 1})
    snapshot.mkdir()
    (snapshot / "model.safetensors").symlink_to("../blobs/aa")
    (snapshot / "config.json").symlink_to("../blobs/bb")
    (snapshot / "model.safetensors.index.json").symlink_to("../blobs/gone")
    found = scan(str(snapshot))
    assert (found.kind, found.bytes) == ("model", 7)
    assert found.unreadable == ("model.safetensors.index.json",)


def test_no_such_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        scan(str(tmp_path / "none"))
    assert caught.value.code == "unreadable-folder"


listed = st.dictionaries(
    st.sampled_from(
        [*LLAMA, *MISTRAL_TWICE, *MISTRAL_ONLY, *GPT2, *TRAINED, *LORA, *META, *DIFFUSERS, *GGUF_REPOSITORY]
    ),
    st.none() | st.integers(0, 10**12),
)


@given(listed)
def test_no_file_counts_twice_and_the_format_that_wins_is_there(files: dict[str, int | None]) -> None:
    found: Contents = sort_files(files)
    assert len(set(found.weights)) == len(found.weights)
    assert not set(found.weights) & set(found.left_out)
    assert set(found.weights) | set(found.left_out) <= set(files)
    assert found.format in (*FORMATS, "")
    if any(name.endswith(".safetensors") and "/" not in name and "adapter" not in name for name in files):
        assert found.format == "safetensors"
    if found.weights and None not in [files[name] for name in found.weights]:
        assert found.bytes == sum(files[name] or 0 for name in found.weights)
