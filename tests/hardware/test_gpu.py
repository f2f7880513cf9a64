"""What a Gpu says about itself."""

from __future__ import annotations

import pytest

from kvtax.hardware import Gpu


def card(capability: str | None) -> Gpu:
    return Gpu("x", "X", "V", "datacenter", 2**34, "a test", compute_capability=capability)


@pytest.mark.parametrize(
    ("capability", "bf16", "fp8", "fp4"),
    [
        ("7.0", False, False, False),
        ("7.5", False, False, False),
        ("8.0", True, False, False),
        ("8.6", True, False, False),
        ("8.9", True, True, False),
        ("9.0", True, True, False),
        ("10.0", True, True, True),
        ("12.1", True, True, True),
        ("gfx906", False, False, False),
        ("gfx908", True, False, False),
        ("gfx90a", True, False, False),
        ("gfx942", True, True, False),
        ("gfx950", True, True, True),
        ("gfx1100", True, False, False),
        ("gfx1201", True, True, False),
        (None, None, None, None),
        ("new", None, None, None),
    ],
)
def test_dtypes_in_hardware_follow_the_compute_capability(
    capability: str | None, bf16: bool | None, fp8: bool | None, fp4: bool | None
) -> None:
    gpu = card(capability)
    assert (gpu.supports_bf16, gpu.supports_fp8, gpu.supports_fp4) == (bf16, fp8, fp4)


def test_a_known_speed_tells_the_dtype_where_there_is_no_capability() -> None:
    gpu = card(None)._replace(bf16_flops=10**14, fp8_flops=10**14)
    assert gpu.supports_bf16 is True
    assert gpu.supports_fp8 is True
    assert gpu.supports_fp4 is None
