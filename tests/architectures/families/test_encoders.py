"""Encoders: BERT and its kin, DeBERTa, ModernBERT, EuroBERT, Nomic BERT, GTE and Jina V3."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kvtax
from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError, UnsupportedArchitectureError
from kvtax.sources.class_defaults import class_defaults

ROOT = Path(__file__).parents[3]
# tiny configs of every class, and what transformers 5.24.0 counts for them
ROWS = [json.loads(line) for line in (ROOT / "tests/data/tiny_encoders.jsonl").read_text().splitlines()]
BASE = {
    "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
    "max_position_embeddings": 512, "type_vocab_size": 2, "vocab_size": 30522,
}  # fmt: skip
LARGE = {**BASE, "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
MINI = {**BASE, "hidden_size": 384, "num_hidden_layers": 6, "intermediate_size": 1536}
XLM = {**LARGE, "model_type": "xlm-roberta", "type_vocab_size": 1, "vocab_size": 250002, "pad_token_id": 1}
XLM_BASE = {
    **XLM,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 514,
}
ONE_LABEL = {"id2label": {"0": "LABEL_0"}}
NOMIC = {
    "model_type": "nomic_bert", "architectures": ["NomicBertModel"], "n_embd": 768, "n_head": 12, "n_inner": 3072, "n_layer": 12,
    "n_positions": 8192, "activation_function": "swiglu", "qkv_proj_bias": False, "mlp_fc1_bias": False, "mlp_fc2_bias": False,
    "type_vocab_size": 2, "vocab_size": 30528, "rotary_emb_fraction": 1.0,
}  # fmt: skip
NOMIC_MOE = {
    **NOMIC, "activation_function": "gelu", "qkv_proj_bias": True, "mlp_fc1_bias": True, "mlp_fc2_bias": True, "type_vocab_size": 1,
    "vocab_size": 250048, "num_experts": 8, "moe_every_n_layers": 2, "moe_top_k": 2, "n_positions": 2048,
}  # fmt: skip
NEW = {
    **BASE,
    "model_type": "new",
    "position_embedding_type": "rope",
    "vocab_size": 30528,
    "max_position_embeddings": 8192,
}
DEBERTA_V3 = {
    **BASE, "model_type": "deberta-v2", "type_vocab_size": 0, "vocab_size": 128100, "relative_attention": True, "position_buckets": 256,
    "norm_rel_ebd": "layer_norm", "share_att_key": True, "pos_att_type": "p2c|c2p", "position_biased_input": False,
    "max_relative_positions": -1,
}  # fmt: skip
GEMMA = {
    "model_type": "gemma3_text", "architectures": ["Gemma3TextModel"], "hidden_size": 768, "num_hidden_layers": 24,
    "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 256, "intermediate_size": 1152, "vocab_size": 262144,
    "sliding_window": 512, "max_position_embeddings": 2048, "use_bidirectional_attention": True,
}  # fmt: skip


def read(config: dict[str, Any], **changes: Any) -> kvtax.Architecture:
    return read_architecture({**config, **changes}, class_defaults)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['config']['architectures'][0]}-{row['parameters']}")
def test_parameters_are_the_librarys(row: dict[str, Any]) -> None:
    found = read(row["config"])
    assert found.parameters == row["parameters"]
    assert found.kind == "encoder"
    assert (found.kv_bytes(1000), found.kv_bytes_per_token(at=1), found.state_bytes()) == (0, 0, 0)
    assert len(found.caches) == found.num_hidden_layers


# totals of the published files, the buffer of positions apart
@pytest.mark.parametrize(
    ("config", "architecture", "parameters"),
    [
        ({**MINI, "model_type": "bert"}, "BertModel", 22713216),  # sentence-transformers/all-MiniLM-L6-v2
        ({**MINI, **ONE_LABEL, "model_type": "bert"}, "BertForSequenceClassification", 22713601),  # cross-encoder/ms-marco-MiniLM-L6-v2
        ({**BASE, "model_type": "bert"}, "BertModel", 109482240),  # BAAI/bge-base-en-v1.5
        ({**LARGE, "model_type": "bert"}, "BertModel", 335141888),  # BAAI/bge-large-en-v1.5
        ({**XLM, "max_position_embeddings": 8194}, "XLMRobertaModel", 567754752),  # BAAI/bge-m3
        ({**XLM, **ONE_LABEL, "max_position_embeddings": 8194}, "XLMRobertaForSequenceClassification", 567755777),  # BAAI/bge-reranker-v2-m3
        ({**XLM, "max_position_embeddings": 514}, "XLMRobertaModel", 559890432),  # intfloat/multilingual-e5-large
        (NOMIC, "NomicBertModel", 136731648),  # nomic-ai/nomic-embed-text-v1.5
        (NOMIC_MOE, "NomicBertModel", 475292928),  # nomic-ai/nomic-embed-text-v2-moe
        ({**NEW, "type_vocab_size": 0}, "NewModel", 136776192),  # Alibaba-NLP/gte-base-en-v1.5
        ({**NEW, "model_type": "gte", "type_vocab_size": 1, "vocab_size": 250048}, "GteModel", 305368320),  # Snowflake/snowflake-arctic-embed-m-v2.0
        ({"model_type": "modernbert"}, "ModernBertForMaskedLM", 149655232),  # answerdotai/ModernBERT-base
        ({"model_type": "modernbert"}, "ModernBertModel", 149014272),
        (GEMMA, "Gemma3TextModel", 302863104),  # google/embeddinggemma-300m, its dense layers apart
        ({**BASE, "model_type": "roberta", "vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1}, "RobertaForMaskedLM", 124697433),
        (DEBERTA_V3, "DebertaV2Model", 183831552),  # microsoft/deberta-v3-base without its head
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_published_totals(config: dict[str, Any], architecture: str, parameters: int) -> None:
    found = read(config, architectures=[architecture])
    assert found.parameters == parameters
    assert found.kind == "encoder"
    assert found.kv_bytes(4096) == 0


# elements of the files (safetensors totals of the hub, 2026-09-25): the buffer of positions counts there
@pytest.mark.parametrize(
    ("config", "architecture", "stored"),
    [
        ({**MINI, "model_type": "bert"}, "BertModel", 22713728),  # sentence-transformers/all-MiniLM-L6-v2
        ({**MINI, **ONE_LABEL, "model_type": "bert"}, "BertForSequenceClassification", 22714113),  # cross-encoder/ms-marco-MiniLM-L6-v2
        ({**MINI, **ONE_LABEL, "model_type": "bert", "num_hidden_layers": 12}, "BertForSequenceClassification", 33360897),  # ...-L12-v2
        ({**MINI, **ONE_LABEL, "model_type": "bert", "num_hidden_layers": 2}, "BertForSequenceClassification", 15616257),  # ...-L2-v2
        ({**BASE, "model_type": "bert"}, "BertModel", 109482752),  # BAAI/bge-base-en-v1.5
        ({**MINI, "model_type": "bert", "num_hidden_layers": 12}, "BertModel", 33360512),  # BAAI/bge-small-en-v1.5
        ({**XLM, "max_position_embeddings": 514}, "XLMRobertaModel", 559890946),  # intfloat/multilingual-e5-large
        (XLM_BASE, "XLMRobertaModel", 278044162),  # intfloat/multilingual-e5-base
        ({**BASE, "model_type": "mpnet", "vocab_size": 30527, "max_position_embeddings": 514}, "MPNetModel", 109486978),  # all-mpnet-base-v2
        ({**BASE, "model_type": "bert", "vocab_size": 501153}, "BertModel", 470927360),  # sentence-transformers/LaBSE
    ],
    ids=lambda value: str(value) if isinstance(value, int) else "",
)  # fmt: skip
def test_files_of_before_4_31(config: dict[str, Any], architecture: str, stored: int) -> None:
    assert read(config, architectures=[architecture], transformers_version="4.30.0").checkpoint_parameters == stored


def test_names_stand_below_the_base_where_there_is_a_head() -> None:
    bare, headed = (
        {tensor.name for tensor in read(BASE, model_type="bert", architectures=[name]).tensors}
        for name in ("BertModel", "BertForSequenceClassification")
    )
    assert "encoder.layer.*.attention.self.query.weight" in bare
    assert headed == {f"bert.{name}" for name in bare} | {"classifier.weight", "classifier.bias"}


def test_files_of_old_releases_hold_the_positions() -> None:
    def stored(version: Any) -> int:
        found = read(BASE, model_type="bert", architectures=["BertModel"], transformers_version=version)
        assert found.parameters == 109482240
        return (found.checkpoint_parameters or 0) - found.parameters

    assert [stored(version) for version in ("4.8.2", "4.30.0.dev0", "4.31.0", "5.0", "x.y", None, 4)] == [
        512,
        512,
        0,
        0,
        0,
        0,
        0,
    ]


def test_positions_after_the_padding_token() -> None:
    assert read(XLM, max_position_embeddings=8194).max_position_embeddings == 8192
    assert read(BASE, model_type="bert").max_position_embeddings == 512


def test_other_spellings() -> None:
    plain = {key: value for key, value in NOMIC.items() if not key.startswith("n_")}
    other = read(plain, hidden_size=768, num_attention_heads=12, intermediate_size=3072, num_hidden_layers=12)
    assert other.tensors == read(NOMIC).tensors
    listed = read(DEBERTA_V3, pos_att_type=["p2c", "c2p"])
    assert listed.tensors == read(DEBERTA_V3).tensors


def test_a_decoder_that_attends_both_ways_keeps_nothing() -> None:
    assert read(GEMMA, use_bidirectional_attention=False).kv_bytes(100) > 0
    qwen = {
        "model_type": "qwen2", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 96, "vocab_size": 100,
    }  # fmt: skip
    assert read(qwen, is_causal=False).kv_bytes(100) == 0
    assert read(qwen, is_causal=True).kv_bytes(100) > 0
    scores = read(qwen, architectures=["Qwen2ForSequenceClassification"], num_labels=1)
    assert {tensor.name: tensor.shape for tensor in scores.tensors}["score.weight"] == (1, 64)


@pytest.mark.parametrize(
    "changes",
    [
        {"model_type": "bert", "is_decoder": True},
        {"model_type": "bert", "architectures": ["BertLMHeadModel"]},
        {"model_type": "bert", "position_embedding_type": "relative_key"},
        {"model_type": "xlm-roberta", "position_embedding_type": "rotary"},
        {"model_type": "new", "position_embedding_type": "absolute"},
        {"model_type": "mpnet", "architectures": ["MPNetForMultipleChoice"]},
    ],
)
def test_unsupported(changes: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedArchitectureError):
        read(BASE, **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"model_type": "bert", "num_attention_heads": 7},
        {"model_type": "nomic_bert", "rotary_emb_fraction": 2},
        {"model_type": "nomic_bert", "moe_every_n_layers": 2, "num_experts": 0},
        {"model_type": "deberta-v2", "conv_kernel_size": 3, "conv_groups": 5},
        {"model_type": "distilbert", "hidden_dim": 0},
    ],
)
def test_impossible(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        read(BASE, **changes)


@pytest.mark.parametrize(
    ("engine", "outcome"),
    [("vllm", "fits"), ("sglang", "fits"), ("tgi", "refused"), ("lmdeploy", "refused"), ("tensorrt-llm", "refused")],
)
def test_budgets(engine: str, outcome: str) -> None:
    config = {**XLM, "architectures": ["XLMRobertaModel"], "max_position_embeddings": 8194, "torch_dtype": "float32"}
    found = kvtax.budget(model=config, gpu="a100-80", engine=engine)
    assert found.verdict == outcome
    assert found.memory.weights_bytes == 2 * 567754752
    if engine == "vllm":
        assert (found.kv_pool_bytes, found.live_bytes_per_request) == (0, 0)
        assert found.max_concurrency == found.max_num_seqs == 256
        assert found.interval["max_concurrency"] == [256, 256]
        assert found.settings()["runner"].value == "pooling"
    if engine == "sglang":
        # rows are laid out for every layer: 24 x 2 x 1024 x 2 B
        assert found.answer.pool.bytes_per_token == 98304
        assert found.memory.cuda_graph_bytes == 0


def test_classes_that_an_engine_does_not_list() -> None:
    mpnet = {**BASE, "model_type": "mpnet", "architectures": ["MPNetModel"]}
    assert "encoder-not-listed" in {notice.code for notice in kvtax.budget(model=mpnet, gpu="l4").notices}
    assert kvtax.budget(model=mpnet, gpu="l4", engine="sglang").verdict == "refused"
    renamed = kvtax.budget(model={**NEW, "architectures": ["NewModel"]}, gpu="l4")
    assert "encoder-renamed" in {notice.code for notice in renamed.notices}
