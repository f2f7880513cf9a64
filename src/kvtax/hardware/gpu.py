"""One accelerator as an engine sees it."""

from typing import NamedTuple

_AMD_BF16 = ("gfx908", "gfx90a", "gfx94", "gfx95", "gfx11", "gfx12")
_AMD_FP8 = ("gfx94", "gfx95", "gfx12")
_AMD_FP4 = ("gfx95",)
_NVIDIA_BF16, _NVIDIA_FP8, _NVIDIA_FP4 = (8, 0), (8, 9), (10, 0)


class Price(NamedTuple):
    """What one GPU cost for an hour somewhere, once; never a quote."""

    usd_per_hour: float
    provider: str
    date: str
    source: str


class Gpu(NamedTuple):
    """A GPU, a part of one (a MIG slice), or a machine whose memory the GPU shares."""

    id: str
    name: str
    vendor: str
    kind: str
    """`datacenter`, `workstation`, `consumer`, `laptop`, `embedded`, or `user` for an entry of one's own."""
    total_bytes: int
    """Usable memory as CUDA or HIP reports it: what engines take their fractions of. Less than the nominal size."""
    total_source: str
    total_is_estimate: bool = False
    nominal_gb: float | None = None
    bandwidth_bytes_per_second: int | None = None
    bf16_flops: int | None = None
    fp8_flops: int | None = None
    fp4_flops: int | None = None
    compute_capability: str | None = None
    """`9.0` on NVIDIA, `gfx942` on AMD, None elsewhere."""
    unified_memory: bool = False
    parent: str | None = None
    """The id of the whole card, where this is a MIG slice."""
    source: str = ""
    date: str = ""
    unverified: tuple[str, ...] = ()
    note: str = ""
    prices: tuple[Price, ...] = ()
    aliases: tuple[str, ...] = ()
    total_seen_bytes: tuple[int, int] | None = None
    """The smallest and largest total that machines with this card printed, where several are known."""
    driver_total_mib: int | None = None
    """Memory as nvidia-smi prints it: what the driver keeps for itself is in it."""

    @property
    def supports_bf16(self) -> bool | None:
        """Whether the card computes in bfloat16; None where that is not known."""
        return _supports(self.compute_capability, _NVIDIA_BF16, _AMD_BF16, self.bf16_flops)

    @property
    def supports_fp8(self) -> bool | None:
        """Whether the card computes in 8-bit floats; None where that is not known."""
        return _supports(self.compute_capability, _NVIDIA_FP8, _AMD_FP8, self.fp8_flops)

    @property
    def supports_fp4(self) -> bool | None:
        """Whether the card computes in 4-bit floats; None where that is not known."""
        return _supports(self.compute_capability, _NVIDIA_FP4, _AMD_FP4, self.fp4_flops)


def _supports(
    capability: str | None, minimum: tuple[int, int], families: tuple[str, ...], flops: int | None
) -> bool | None:
    if capability is None:
        return True if flops else None
    if capability.startswith("gfx"):
        return capability.startswith(families)
    major, _, minor = capability.partition(".")
    if not (major.isdecimal() and (minor.isdecimal() or not minor)):
        return None
    return (int(major), int(minor or "0")) >= minimum
