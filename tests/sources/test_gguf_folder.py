"""GGUF files of repositories as they are really named become quantisations."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtax.errors import ConfigError, KvtaxError, UnknownNameError
from kvtax.sources.gguf_folder import GgufChoice, choices, default_choice, label_of, pick, sort_gguf

GB = 10**9


def shards(stem: str, count: int, size: int = GB) -> dict[str, int | None]:
    return {f"{stem}-{number:05d}-of-{count:05d}.gguf": size for number in range(1, count + 1)}


# names as repositories of these publishers have them; sizes are only in proportion
BARTOWSKI: dict[str, int | None] = {
    ".gitattributes": 1, "README.md": 1,
    "mmproj-Qwen_Qwen3.5-4B-bf16.gguf": 671_000_000,
    "Qwen_Qwen3.5-4B-IQ2_M.gguf": 1_900_000_000,
    "Qwen_Qwen3.5-4B-IQ4_NL.gguf": 2_600_000_000,
    "Qwen_Qwen3.5-4B-Q4_K_L.gguf": 2_990_000_000,
    "Qwen_Qwen3.5-4B-Q4_K_M.gguf": 2_870_000_000,
    "Qwen_Qwen3.5-4B-Q6_K.gguf": 3_600_000_000,
    "Qwen_Qwen3.5-4B-Q6_K_L.gguf": 3_959_316_448,
    "Qwen_Qwen3.5-4B-bf16.gguf": 8_400_000_000,
    "Qwen_Qwen3.5-4B-imatrix.gguf": 3_400_000,
}  # fmt: skip
UNSLOTH: dict[str, int | None] = {
    **shards("BF16/Qwen3.8-Flash-Next-BF16", 3, 40 * GB),
    "UD-Q4_K_XL/Qwen3.8-Flash-Next-UD-Q4_K_XL-00001-of-00004.gguf": 10_946_624,
    "UD-Q4_K_XL/Qwen3.8-Flash-Next-UD-Q4_K_XL-00002-of-00004.gguf": 49_859_583_136,
    "UD-Q4_K_XL/Qwen3.8-Flash-Next-UD-Q4_K_XL-00003-of-00004.gguf": 49_376_141_504,
    "UD-Q4_K_XL/Qwen3.8-Flash-Next-UD-Q4_K_XL-00004-of-00004.gguf": 12_087_983_520,
    "MTP/mtp-Qwen3.8-Flash-Next-Q4_K_M.gguf": 2_786_204_800,
    "imatrix_unsloth.gguf_file": 580_038_720,
    "mmproj-BF16.gguf": 900_000_000, "mmproj-F16.gguf": 900_000_000, "mmproj-F32.gguf": 1_800_000_000,
    "Qwen3.8-Flash-Next-UD-TQ1_0.gguf": 40 * GB, "Qwen3.8-Flash-Next-UD-IQ2_XXS.gguf": 45 * GB,
}  # fmt: skip
GGML_ORG: dict[str, int | None] = {
    "README.md": 1,
    "model-BF16.gguf": 62 * GB, "model-Q4_K_M.gguf": 19 * GB, "model-Q8_0.gguf": 33 * GB,
    "mmproj-model-BF16.gguf": GB, "mmproj-model-Q8_0.gguf": GB // 2,
    "mtp-model-BF16.gguf": 2 * GB, "mtp-model-Q4_0.gguf": GB // 2, "mtp-model-Q8_0.gguf": GB,
    "dflash-model-BF16.gguf": 2 * GB, "eagle3-model-Q8_0.gguf": GB, "dspark-model-MXFP4.gguf": GB,
}  # fmt: skip
STEPFUN: dict[str, int | None] = {
    "mmproj-model-f16.gguf": GB, "model-mtp-BF16.gguf": 3 * GB, "model-mtp-Q8_0.gguf": 2 * GB,
    **shards("Q3_K_M/model-Q3_K_M", 3, 30 * GB), **shards("Q8_0/model-Q8_0", 2, 100 * GB),
}  # fmt: skip
MRADERMACHER: dict[str, int | None] = {
    "WizardLM-2-8x22B.i1-IQ1_S.gguf": 29 * GB, "WizardLM-2-8x22B.i1-Q4_K_M.gguf.part1of2": 40 * GB,
    "WizardLM-2-8x22B.i1-Q4_K_M.gguf.part2of2": 40 * GB, "WizardLM-2-8x22B.i1-Q2_K.gguf": 52 * GB,
    "WizardLM-2-8x22B.imatrix.dat": 1, "WizardLM-2-8x22B.mmproj-Q8_0.gguf": GB,
}  # fmt: skip
THEBLOKE: dict[str, int | None] = {
    "llama-2-70b-chat.Q2_K.gguf": 29 * GB, "llama-2-70b-chat.Q4_0.gguf": 39 * GB, "llama-2-70b-chat.Q5_K_M.gguf": 48 * GB,
    "llama-2-70b-chat.Q8_0.gguf-split-a": 36 * GB, "llama-2-70b-chat.Q8_0.gguf-split-b": 36 * GB, "config.json": 1,
}  # fmt: skip
LLAVA: dict[str, int | None] = {
    "ggml-model-q4_k.gguf": 4 * GB,
    "ggml-model-f16.gguf": 13 * GB,
    "mmproj-model-f16.gguf": GB,
}
APEX: dict[str, int | None] = {f"Step-3.7-Flash-APEX-{name}.gguf": GB for name in ("Compact", "I-Compact", "I-Mini")}


def labels(files: dict[str, int | None]) -> list[str]:
    return [choice.label for choice in choices(files)]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (BARTOWSKI, ["IQ2_M", "IQ4_NL", "Q4_K_M", "Q4_K_L", "Q6_K", "Q6_K_L", "BF16"]),
        (UNSLOTH, ["UD-TQ1_0", "UD-IQ2_XXS", "UD-Q4_K_XL", "BF16"]),
        (GGML_ORG, ["Q4_K_M", "Q8_0", "BF16"]),
        (STEPFUN, ["Q3_K_M", "Q8_0"]),
        (MRADERMACHER, ["IQ1_S", "Q2_K"]),
        (THEBLOKE, ["Q2_K", "Q4_0", "Q5_K_M"]),
        (LLAVA, ["Q4_K", "F16"]),
        (APEX, ["Step-3.7-Flash-APEX-Compact", "Step-3.7-Flash-APEX-I-Compact", "Step-3.7-Flash-APEX-I-Mini"]),
        (shards("qwen2.5-7b-instruct-q4_k_m", 2) | {"qwen2.5-7b-instruct-q2_k.gguf": GB}, ["Q2_K", "Q4_K_M"]),
        ({"model.gguf": 5}, ["model"]),
        ({"Q4_K_M/model.gguf": 5, "Q8_0/model.gguf": 8}, ["Q4_K_M", "Q8_0"]),
        ({"gpt-oss-20b-MXFP4.gguf": 5}, ["MXFP4"]),
        ({"m-MXFP4_MOE.gguf": 5, "m-NVFP4.gguf": 6}, ["MXFP4_MOE", "NVFP4"]),
    ],
)  # fmt: skip
def test_the_quantisations_of_a_repository(files: dict[str, int | None], expected: list[str]) -> None:
    assert labels(files) == expected


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("Meta-Llama-3.1-8B-Instruct-Q6_K_L.gguf", "Q6_K_L"),
        ("ggml-model-q4_0.gguf", "Q4_0"),
        ("all_hands_openhands_lm_7b_v0_1_Q6_K_L.gguf", "Q6_K_L"),
        ("MiniCPM-V-2.6_Q8_0.gguf", "Q8_0"),
        ("Huihui-gpt-oss-120b-BF16-abliterated.i1-IQ4_XS.gguf", "IQ4_XS"),
        ("stablelm-2-1_6b-chat.Q4_K_M.imx.gguf", "Q4_K_M"),
        ("Llama-3.2-1B-Q4_0_4_4.gguf", "Q4_0_4_4"),
        ("Model-55IQ2_XXS-34Q2_K-07Q8_0-03F16.gguf", ""),
        ("UD-IQ3_XXS/x.gguf", "UD-IQ3_XXS"),
        ("x-fp16.gguf", "FP16"),
        ("phi-4.gguf", ""),
        ("Qwen3-32B.gguf", ""),
    ],
)
def test_label_of_a_name(name: str, label: str) -> None:
    assert label_of(name) == label


def test_shards_stand_in_order_and_are_summed() -> None:
    names = list(UNSLOTH)
    random.Random(1).shuffle(names)
    choice = pick(choices({name: UNSLOTH[name] for name in names}), "UD-Q4_K_XL")
    assert choice.files == tuple(name for name in UNSLOTH if name.startswith("UD-Q4"))
    assert choice.bytes == 10_946_624 + 49_859_583_136 + 49_376_141_504 + 12_087_983_520
    assert choice.complete


def test_what_is_no_model_is_named_apart() -> None:
    found = sort_gguf(UNSLOTH | {"lora-x-f16.gguf": 1, "x-F16-LoRA.gguf": 1, "ggml-vocab-llama-bpe.gguf": 1})
    assert found.projectors == ("mmproj-BF16.gguf", "mmproj-F16.gguf", "mmproj-F32.gguf")
    assert found.drafts == ("MTP/mtp-Qwen3.8-Flash-Next-Q4_K_M.gguf",)
    assert found.adapters == ("lora-x-f16.gguf", "x-F16-LoRA.gguf")
    assert found.others == ("ggml-vocab-llama-bpe.gguf",)
    assert len(sort_gguf(MRADERMACHER).pieces) == 2
    assert len(sort_gguf(THEBLOKE).pieces) == 2
    assert sort_gguf({"Ministral-3-8B-BF16-mmproj.gguf": 1}).projectors
    assert sort_gguf({"x-chunk-001-of-018.gguf": 1}).pieces
    assert sort_gguf(BARTOWSKI).others == ("Qwen_Qwen3.5-4B-imatrix.gguf",)
    assert sort_gguf(STEPFUN).drafts == ("model-mtp-BF16.gguf", "model-mtp-Q8_0.gguf")


def test_a_model_with_its_heads_inside_is_a_model() -> None:
    """Where every file is called MTP, and where the file called so is as large as the model."""
    assert labels({"Ornith-1.5-9B-MTP-IQ2_M.gguf": 4, "mmproj-Ornith-1.5-9B-BF16.gguf": 1}) == ["IQ2_M"]
    both = {"m-Q4_K_M.gguf": 100, "m-MTP-Q4_K_M.gguf": 104}
    assert labels(both) == ["m-Q4_K_M", "m-MTP-Q4_K_M"]
    assert pick(choices(both), "m-MTP-Q4_K_M.gguf").bytes == 104
    assert sort_gguf({"m-Q4_K_M.gguf": None, "m-MTP-BF16.gguf": None}).drafts == ("m-MTP-BF16.gguf",)


def test_models_that_share_a_quantisation_keep_their_names() -> None:
    files = {"TheDrummer_Model-24B-v4.1-Q8_0.gguf": 3, "BlackSheep-24B.Q8_0.gguf": 2, "BlackSheep-24B.Q4_0.gguf": 1}
    assert labels(files) == ["Q4_0", "BlackSheep-24B.Q8_0", "TheDrummer_Model-24B-v4.1-Q8_0"]
    with pytest.raises(UnknownNameError, match="more than one") as caught:
        pick(choices(files), "q8_0")
    assert caught.value.code == "ambiguous-quantization"
    assert "BlackSheep-24B.Q8_0.gguf (2 B)" in caught.value.hint
    twice = {"a/m-Q8_0.gguf": 1, "b/m-Q8_0.gguf": 1}
    assert labels(twice) == ["a/m-Q8_0.gguf", "b/m-Q8_0.gguf"]


@pytest.mark.parametrize(
    ("wanted", "label"),
    [
        ("q4_k_m", "Q4_K_M"), (" Q4_K_M ", "Q4_K_M"), ("bf16", "BF16"), ("model-q8_0.GGUF", "Q8_0"),
        ("model-Q4_K_M.gguf", "Q4_K_M"),
    ],
)  # fmt: skip
def test_pick(wanted: str, label: str) -> None:
    assert pick(choices(GGML_ORG), wanted).label == label


def test_pick_with_and_without_ud() -> None:
    assert pick(choices(UNSLOTH), "iq2_xxs").label == "UD-IQ2_XXS"
    assert pick(choices({"m-Q4_0.gguf": 1}), "UD-Q4_0").label == "Q4_0"
    both = choices({"m-Q2_K.gguf": 1, "m-UD-Q2_K.gguf": 2})
    assert pick(both, "Q2_K").bytes == 1
    assert pick(both, "ud-q2_k").bytes == 2
    assert pick(choices({"m-fp16.gguf": 1}), "F16").label == "FP16"


def test_pick_by_file_with_and_without_its_folder() -> None:
    wanted = "Q3_K_M/model-Q3_K_M-00001-of-00003.gguf"
    for name in (wanted, wanted.partition("/")[2], "model-Q3_K_M-00003-of-00003.gguf"):
        assert pick(choices(STEPFUN), name).files[0] == wanted


def test_an_unknown_quantisation_is_told_what_is_there() -> None:
    with pytest.raises(UnknownNameError) as caught:
        pick(choices(GGML_ORG), "Q5_K_M")
    assert caught.value.code == "unknown-quantization"
    assert caught.value.hint == "there are Q4_K_M (17.7 GiB), Q8_0 (30.73 GiB), BF16 (57.74 GiB)"
    with pytest.raises(UnknownNameError, match="no GGUF file"):
        pick((), "")


def test_missing_shards_are_an_error_and_shown() -> None:
    files = {name: size for name, size in STEPFUN.items() if "00002-of-00003" not in name}
    found = choices(files)
    assert [choice.complete for choice in found if choice.label == "Q3_K_M"] == [False]
    with pytest.raises(ConfigError, match="2 of 3 shards") as caught:
        pick(found, "Q3_K_M")
    assert caught.value.code == "missing-shard"


def test_default_choice() -> None:
    def of(files: dict[str, int | None]) -> str | None:
        choice = default_choice(choices(files))
        return choice and choice.label

    assert of(GGML_ORG) == "Q4_K_M"
    assert of(STEPFUN) == "Q8_0"
    assert of(UNSLOTH) == "BF16"
    assert of({}) is None


def test_unknown_sizes_come_last() -> None:
    found = choices({"m-Q8_0.gguf": None, "m-Q4_0.gguf": 4, **shards("m-Q2_K", 2), "m-Q2_K-00001-of-00002.gguf": None})
    assert [(choice.label, choice.bytes) for choice in found] == [("Q4_0", 4), ("Q2_K", None), ("Q8_0", None)]


names = st.one_of(
    st.from_regex(r"\A([A-Z0-9_]{1,8}/)?[A-Za-z0-9._-]{1,24}(-0000[0-4]-of-0000[0-4])?\.(gguf|GGUF)\Z"),
    st.text(max_size=30),
)


@given(st.dictionaries(names, st.none() | st.integers(-1, 10**12), max_size=12))
def test_every_choice_can_be_picked_by_its_label_and_every_file_is_somewhere_once(files: dict[str, int | None]) -> None:
    found = sort_gguf(files)
    listed = [name for choice in found.choices for name in choice.files]
    listed += [*found.projectors, *found.drafts, *found.adapters, *found.pieces, *found.others]
    assert len(listed) == len(set(listed))
    assert {name for name in files if name.lower().endswith(".gguf")} <= set(listed) <= set(files)
    assert found == sort_gguf(dict(reversed(files.items())))
    for choice in found.choices:
        assert choice.label and choice.label.isprintable()
        try:
            assert pick(found.choices, choice.files[0]) == choice
        except KvtaxError as error:
            assert error.code in ("missing-shard", "ambiguous-quantization")


def test_a_choice_is_a_plain_tuple() -> None:
    assert choices({"m-Q4_0.gguf": 4}) == (GgufChoice("Q4_0", ("m-Q4_0.gguf",), 4, True),)
