"""Sizes and numbers of tokens as people write them: exact, or one clear refusal."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtax.errors import InputError
from kvtax.units import GIB, KIB, MIB, parse_bytes, parse_tokens


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("48GiB", 48 * GIB), ("48G", 48 * GIB), ("48gb", 48 * 10**9), ("80000 MiB", 80000 * MIB), ("1.5GiB", 3 * GIB // 2),
        (".5k", 512), ("81_920", 81920), ("1,024", 1024), (7, 7), ("9007199254740993", 2**53 + 1), ("8.0", 8),
    ],
)  # fmt: skip
def test_bytes(text, value):
    assert parse_bytes(text) == value


@pytest.mark.parametrize(
    ("text", "value"), [("8192", 8192), ("8k", 8192), ("128K", 131072), ("1M", 2**20), ("1.5k", 1536), ("8.0", 8)]
)
def test_tokens(text, value):
    assert parse_tokens(text) == value


@given(st.integers(0, 2**20), st.integers(0, 999), st.sampled_from([("KiB", KIB), ("GB", 10**9), ("GiB", GIB)]))
def test_fractions_are_exact(whole, thousandths, unit):
    name, factor = unit
    exact = (whole + Fraction(thousandths, 1000)) * factor
    assert parse_bytes(f"{whole}.{thousandths:03d}{name}") == int(exact)


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (parse_bytes, "1.5", "whole number"), (parse_bytes, "1.5B", "whole number"), (parse_tokens, "8.5", "whole number"),
        (parse_bytes, "-1GiB", "negative"), (parse_tokens, "-1", "negative"),
        (parse_bytes, "GiB", "not a number"), (parse_bytes, "1.2.3G", "not a number"), (parse_bytes, "", "not a number"),
        (parse_bytes, "48 gigs", "no known unit"), (parse_tokens, "8GiB", "no known unit"),
        (parse_bytes, "2048PiB", "no known unit"), (parse_bytes, "9999999TiB", "out of range"),
        (parse_bytes, True, "not a number"), (parse_tokens, 0, "between 1 and"), (parse_tokens, "4G", "between 1 and"),
    ],
)  # fmt: skip
def test_refusals(parse, text, message):
    with pytest.raises(InputError, match=message):
        parse(text)
