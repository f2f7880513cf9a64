"""Prices of cards: a file of one's own, read strictly, and dated examples with a source."""

import pytest

from kvtax.errors import InputError
from kvtax.sources.gpus import find_gpu
from kvtax.sources.prices import Prices, load_prices


def write(tmp_path, text):
    path = tmp_path / "prices.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_examples_have_a_source_and_a_date():
    entries = [entry for found in load_prices("examples").entries.values() for entry in found]
    assert len(entries) >= 10
    for entry in entries:
        assert find_gpu(entry.gpu_id).id == entry.gpu_id
        assert entry.per_hour > 0
        assert entry.provider
        assert entry.date
        assert entry.source


def test_the_lowest_price_that_holds(tmp_path):
    rows = [("h100-sxm", 3.0, ""), ("h100", 2.0, "gpus_per_node = 8"), ("h100-sxm", 2.5, "")]
    text = "".join(
        f'[[price]]\ngpu = "{gpu}"\nper_hour = {price}\n{more}\n' for gpu, price, more in rows if gpu != "h100"
    )
    text += '[[price]]\ngpu = "h100-sxm"\nper_hour = 2.0\ngpus_per_node = 8\n'
    found = load_prices(write(tmp_path, text))
    assert [found.per_gpu_hour("h100-sxm", count).per_hour for count in (1, 4, 8, 16)] == [2.5, 2.5, 2.0, 2.0]
    assert found.per_gpu_hour("l4") is None
    assert Prices(()).per_gpu_hour("l4") is None


@pytest.mark.parametrize(
    "text",
    ["", "[[price]]", '[[price]]\ngpu="no-such"\nper_hour=1.0', '[[price]]\ngpu="l4"\nper_hour=-1.0', '[[price]]\ngpu="l4"\nper_hour=nan',
     '[[price]]\ngpu="l4"\nper_hour="1"', '[[price]]\ngpu="l4"\nper_hour=1.0\ncolour="red"', "price = 3", "[[price",
     '[[price]]\ngpu="l4"\nper_hour=1.0\n[[price]]\ngpu="t4"\nper_hour=1.0\ncurrency="EUR"', '[[price]]\ngpu="l4"\nper_hour=1.0\ngpus_per_node=0'],
)  # fmt: skip
def test_what_is_wrong_is_named(tmp_path, text):
    with pytest.raises(InputError) as caught:
        load_prices(write(tmp_path, text))
    assert "prices.toml" in str(caught.value)
