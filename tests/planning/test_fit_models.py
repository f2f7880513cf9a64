"""The models that a card carries: each in the widest quantisation, and none is missed."""

import pytest

import kvtax
from kvtax import architecture
from kvtax.planning.fit_models import fit_models
from kvtax.planning.quantizations import GGUF_FORMATS, usual_formats


def fits(model, quantization, **fields):
    return kvtax.budget(model=model, quantization=quantization, **fields).fits


@pytest.mark.parametrize("words", [("qwen3",), ("llama", "3"), ("gemma",)], ids=" ".join)
def test_the_widest_gguf_quantisation_by_brute_force(words):
    fields = {"gpu": "rtx-4090", "engine": "llama.cpp", "max_model_len": 16384}
    found = fit_models(words, every=True, **fields)
    assert found.choices
    for choice in found.choices:
        fitting = [each.name for each in GGUF_FORMATS if fits(choice.entry.id, each.name, **fields)]
        assert [choice.format.name, *(each.name for each, _ in choice.others)] == fitting
        asked = {**fields, "model": choice.entry.id, "quantization": choice.format.name}
        assert kvtax.budget(**{**asked, "max_model_len": choice.longest}).fits
    for name in found.too_large:
        assert not any(fits(name, each.name, **fields) for each in GGUF_FORMATS)


def test_the_checkpoint_as_it_is_comes_first():
    found = fit_models(("llama-3-8b",), gpu="h100-sxm", max_model_len=8192)
    assert found.choices[0].format.name is None
    found = fit_models(("llama-3-8b",), gpu="rtx-3060", max_model_len=4096)
    assert found.choices
    for choice in found.choices:
        fields = {"model": choice.entry.id, "gpu": "rtx-3060", "max_model_len": 4096}
        formats = usual_formats(choice.budget.prepared.plan, architecture(choice.entry.id))
        assert choice.format == next(each for each in formats if kvtax.budget(**fields, quantization=each.name).fits)


def test_a_model_with_a_shorter_limit_is_set_aside():
    found = fit_models(("meta-llama-3-8b",), gpu="h100-sxm", max_model_len=65536)
    assert not found.choices
    assert found.too_short


@pytest.mark.parametrize("by", ["parameters", "context", "requests"])
def test_ranked_by_the_stated_key(by):
    found = fit_models(("mistral",), gpu="h100-sxm", by=by, max_model_len=4096)
    keys = {
        "parameters": [choice.budget.prepared.architecture.parameters for choice in found.choices],
        "context": [choice.longest for choice in found.choices],
        "requests": [choice.budget.max_concurrency for choice in found.choices],
    }[by]
    assert keys == sorted(keys, reverse=True)
