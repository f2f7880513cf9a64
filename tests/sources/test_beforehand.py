"""Models that one process looks up for others: what was read travels, and gives the same Model there."""

import pickle

import pytest

import kvtax
from kvtax.sources.beforehand import gather, make_model, standing_in
from kvtax.sources.models import ModelEntry, list_models
from kvtax.sources.resolve import find
from tiny_models import CONFIG, safetensors_folder


def travelled(name, extra=()):
    return make_model(name, pickle.loads(pickle.dumps(gather(name, extra))))  # noqa: S301


def test_the_catalogue_needs_nothing():
    assert all(gather(entry.id) is None for entry in list_models()[:20])
    assert gather("llama-3-8b") is None


def test_an_entry_of_ones_own():
    entry = ModelEntry("mine", "", "user", "user", aliases=("llama-3-8b",), config=dict(CONFIG))
    for name in ("mine", "llama-3-8b"):
        here, there = find(name, (entry,)), travelled(name, (entry,))
        assert (there.id, there.source, there.notices) == (here.id, here.source, here.notices)
        assert there.architecture.parameters == here.architecture.parameters


def test_a_folder_with_its_headers(tmp_path):
    name = str(safetensors_folder(tmp_path / "tiny"))
    here, there = find(name), travelled(name)
    assert (there.id, there.source, there.notices, there.weights_source) == (
        here.id,
        here.source,
        here.notices,
        here.weights_source,
    )
    assert there.architecture.checkpoint_bytes == here.architecture.checkpoint_bytes


@pytest.mark.parametrize("name", ["no-such-model", "./nowhere", "org/unknown"])
def test_what_cannot_be_had_travels_as_its_error(name):
    with pytest.raises(kvtax.KvtaxError) as here:
        find(name)
    with pytest.raises(kvtax.KvtaxError) as there:
        travelled(name)
    assert there.value.to_dict() == here.value.to_dict()
    assert type(there.value) is type(here.value)


def test_names_stand_in_for_as_long_as_it_lasts():
    model = find("llama-3-8b")
    with standing_in({"x/y": model, "z": kvtax.InputError("not this one")}):
        assert find("x/y") is model
        with pytest.raises(kvtax.InputError, match="not this one"):
            find("z")
    with pytest.raises(kvtax.KvtaxError, match="neither in the catalogue"):
        find("x/y")
