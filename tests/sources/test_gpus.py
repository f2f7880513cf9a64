"""The catalogue of GPUs: every entry is founded, every name leads to one card."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from kvtax.errors import UnknownNameError
from kvtax.hardware import Gpu
from kvtax.sources.data_files import configs_dir, read_json
from kvtax.sources.gpu_names import VENDORS, build_index, index_text, key
from kvtax.sources.gpus import find_gpu, list_gpus, search_gpus

GIB = 2**30
FOLDER = os.path.join(configs_dir(), "gpus")
ALL = list_gpus()
WHOLE = [gpu for gpu in ALL if gpu.parent is None]
ENTRIES = [entry for vendor in VENDORS for entry in read_json(os.path.join(FOLDER, f"{vendor}.json"))["gpus"]]

SERVER_REPORTS = {
    "a10": "a10", "a100-40": "a100-40gb-pcie", "a100-80": "a100-80gb-sxm", "a40": "a40", "a800-80": "a800-80gb",
    "b200": "b200", "b300": "b300", "gb10": "dgx-spark", "gb200": "gb200", "gb300": "gb300", "h100-80": "h100-sxm",
    "h100-96": "h100-96gb", "h100-nvl": "h100-nvl", "h20-96": "h20-96gb", "h200": "h200-sxm", "l20": "l20", "l4": "l4",
    "l40s": "l40s", "mi300x": "mi300x", "mi325x": "mi325x", "mi355x": "mi355x", "r9700": "r9700",
    "rtx-3090": "rtx-3090", "rtx-4070-laptop": "rtx-4070-laptop", "rtx-4080": "rtx-4080", "rtx-4090": "rtx-4090",
    "rtx-4090-48": "rtx-4090-48", "rtx-5000-ada": "rtx-5000-ada", "rtx-5080": "rtx-5080", "rtx-5090": "rtx-5090",
    "rtx-6000-ada": "rtx-6000-ada", "rtx-pro-6000": "rtx-pro-6000", "rx-9070": "rx-9070", "strix-halo": "strix-halo",
    "t4": "t4", "v100-16": "v100-16gb", "v100-32": "v100-32gb",
}  # fmt: skip
"""The names used in public reports of server starts."""

SPELLINGS = {
    "NVIDIA-H100-80GB-HBM3": "h100-sxm",
    "NVIDIA H100 80GB HBM3": "h100-sxm",
    "H100-SXM5-80GB": "h100-sxm",
    "h100_sxm": "h100-sxm",
    "NVIDIA H100 PCIe": "h100-pcie",
    "NVIDIA H100 NVL": "h100-nvl",
    "NVIDIA H200": "h200-sxm",
    "NVIDIA GH200 480GB": "gh200-96gb",
    "NVIDIA B300 SXM6 AC": "b300",
    "Tesla T4": "t4",
    "Tesla-T4-SHARED": "t4",
    "nvidia-tesla-t4": "t4",
    "Tesla V100-SXM2-16GB": "v100-16gb",
    "a100-80g": "a100-80gb-sxm",
    "a100 80GB": "a100-80gb-sxm",
    "A100 80 GB": "a100-80gb-sxm",
    "a100-80gib": "a100-80gb-sxm",
    "NVIDIA A100-SXM4-80GB": "a100-80gb-sxm",
    "NVIDIA-A100-SXM4-40GB": "a100-40gb-sxm",
    "NVIDIA A100 80GB PCIe": "a100-80gb-pcie",
    "NVIDIA A100-PCIE-40GB": "a100-40gb-pcie",
    "rtx4090": "rtx-4090",
    "4090": "rtx-4090",
    "NVIDIA GeForce RTX 4090": "rtx-4090",
    "RTX 4090 24GB": "rtx-4090",
    "NVIDIA GeForce RTX 4090 Laptop GPU": "rtx-4090-laptop",
    "rtx 3080": "rtx-3080-10gb",
    "NVIDIA RTX A6000": "a6000",
    "NVIDIA RTX 6000 Ada Generation": "rtx-6000-ada",
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": "rtx-pro-6000",
    "rtx-pro-5000-72": "rtx-pro-5000-72gb",
    "L20 48 GB": "l20",
    "nvidia-l4": "l4",
    "NVIDIA-L40S": "l40s",
    "A10G": "a10g",
    "NVIDIA GB10": "dgx-spark",
    "AMD Instinct MI300X OAM": "mi300x",
    "AMD Radeon RX 7900 XTX": "rx-7900-xtx",
    "Intel Gaudi 3": "gaudi3",
    "Apple M4 Max": "m4-max",
    "M4 Max 64GB": "m4-max-64gb",
    "m4-max-128gb": "m4-max",
}

SEEN_TOTALS = {
    "t4": 14.57, "v100-16": 15.77, "v100-32": 31.74, "a10": 21.99, "l4": 22.06, "rtx-3090": 23.58, "rtx-5090": 31.35,
    "a100-40": 39.39, "l40s": 44.4, "h100-80": 79.18, "h100-nvl": 93.02, "rtx-pro-6000": 94.97, "h200": 139.81,
    "gb200": 184.31, "gb300": 276.62, "mi300x": 191.98, "mi325x": 255.98, "gb10": 121.63, "rtx-4070-laptop": 7.65,
}  # fmt: skip
"""GiB that a server printed as the total of the card (public start-up logs)."""


@pytest.mark.parametrize(("name", "id_"), [*SERVER_REPORTS.items(), *SPELLINGS.items()])
def test_the_usual_spellings_are_understood(name: str, id_: str) -> None:
    assert find_gpu(name).id == id_


@pytest.mark.parametrize(("name", "gib"), SEEN_TOTALS.items())
def test_totals_are_those_that_servers_print(name: str, gib: float) -> None:
    gpu = find_gpu(name)
    assert gpu.total_bytes / GIB == pytest.approx(gib, rel=0.003)
    assert not gpu.total_is_estimate


@pytest.mark.parametrize("gpu", ALL, ids=[gpu.id for gpu in ALL])
def test_every_entry_can_be_found_and_is_founded(gpu: Gpu) -> None:
    assert find_gpu(gpu.id) == gpu
    assert gpu.date and gpu.source and gpu.total_source and gpu.name and gpu.vendor and gpu.kind
    assert gpu.nominal_gb is not None
    assert 2**32 < gpu.total_bytes < gpu.nominal_gb * GIB
    if not gpu.unified_memory and gpu.parent is None:
        assert gpu.total_bytes > gpu.nominal_gb * GIB * 0.9
    if gpu.total_seen_bytes is not None:
        low, high = gpu.total_seen_bytes
        assert low <= gpu.total_bytes <= high
    for price in gpu.prices:
        assert price.usd_per_hour > 0 and price.provider and price.date and price.source
    for alias in gpu.aliases:
        assert find_gpu(alias).id == gpu.id


@pytest.mark.parametrize("entry", ENTRIES, ids=[entry["id"] for entry in ENTRIES])
def test_every_figure_has_a_source_or_is_marked(entry: dict[str, Any]) -> None:
    sources = entry.get("sources", {})
    unverified = entry.get("unverified", [])
    assert ("bandwidth_gb_s" not in entry) or "bandwidth" in sources or "bandwidth_gb_s" in unverified
    for figure in ("bf16_tflops", "fp8_tflops", "fp4_tflops"):
        assert figure not in entry or "flops" in sources or figure in unverified, figure
    if entry["total_is_estimate"]:
        assert "estimate" in str(entry["total_source"]) or "weak" in str(entry["total_source"])


def test_ids_and_aliases_are_unique() -> None:
    names = [name for gpu in ALL for name in (gpu.id, *gpu.aliases)]
    assert len(names) == len(set(names))
    assert names == [name.lower() for name in names]


def test_the_index_is_in_step_with_the_vendor_files() -> None:
    with open(os.path.join(FOLDER, "index.json"), encoding="utf-8") as file:
        assert file.read() == index_text(build_index(FOLDER)), "run python -m kvtax.sources.gpu_names"


def test_an_index_with_one_name_for_two_cards_is_refused(tmp_path: object) -> None:
    for vendor in VENDORS:
        gpus = [{"id": "x-1"}, {"id": "y", "aliases": ["X 1"]}] if vendor == "amd" else []
        with open(os.path.join(str(tmp_path), f"{vendor}.json"), "w", encoding="utf-8") as file:
            json.dump({"gpus": gpus}, file)
    with pytest.raises(ValueError, match="both"):
        build_index(str(tmp_path))


@pytest.mark.parametrize("name", ["a100", "h100", "v100", "h20", "gh200", "rtx-pro-5000", "NVIDIA H100", "a100-sxm"])
def test_a_name_of_several_cards_lists_them_with_their_memory(name: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        find_gpu(name)
    error = caught.value
    assert error.code == "ambiguous-gpu"
    assert len(error.suggestions) >= 2
    for suggestion in error.suggestions:
        gpu = find_gpu(suggestion)
        assert f"{gpu.id} ({gpu.total_bytes / GIB:.2f} GiB)" in error.message


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("h1000", "h100-sxm"),
        ("rtx-4095", "rtx-4090"),
        ("mi30x", "mi300x"),
        ("l40x", "l40s"),
        ("a100-80gb-smx", "a100-80gb-sxm"),
    ],
)
def test_a_typo_gets_the_closest_three(name: str, expected: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        find_gpu(name)
    assert caught.value.code == "unknown-gpu"
    assert expected in caught.value.suggestions
    assert len(caught.value.suggestions) <= 3
    assert expected in caught.value.hint


@pytest.mark.parametrize(
    "name", ["", " ", "-", "x" * 100_000, "\x1b[31m", "１2g.１gb", "a:b:c", "١٢٣", "l4-999999999999999"]
)
def test_nonsense_is_unknown(name: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        find_gpu(name)
    assert len(str(caught.value)) < 200
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "h100-sxm-1g.10gb",
        "h100-sxm:1g.10gb",
        "H100 SXM 1g.10gb",
        "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb",
        "h100-80:1g.10gb",
    ],
)
def test_a_mig_slice_is_a_gpu_of_its_own(name: str) -> None:
    whole, part = find_gpu("h100-sxm"), find_gpu(name)
    assert part.id == "h100-sxm-1g.10gb"
    assert part.parent == "h100-sxm"
    assert part.total_bytes == round(9.75 * GIB)
    assert whole.bandwidth_bytes_per_second and whole.bf16_flops
    assert part.bandwidth_bytes_per_second == whole.bandwidth_bytes_per_second // 8
    assert part.bf16_flops == whole.bf16_flops // 7
    assert part.supports_fp8 and part.prices == ()


def test_slices_never_exceed_the_card() -> None:
    for gpu in ALL:
        if gpu.parent:
            assert gpu.total_bytes <= find_gpu(gpu.parent).total_bytes


def test_a_slice_that_the_card_does_not_have_is_named() -> None:
    with pytest.raises(UnknownNameError, match=r"h100-sxm has no MIG slice '5g\.60gb'"):
        find_gpu("h100-sxm:5g.60gb")
    with pytest.raises(UnknownNameError, match="l4 has no known MIG slices"):
        find_gpu("l4:1g.5gb")
    with pytest.raises(UnknownNameError) as caught:
        find_gpu("a100:1g.5gb")
    assert caught.value.suggestions == ("a100-40gb-sxm-1g.5gb", "a100-40gb-pcie-1g.5gb")


def test_a_user_entry_comes_first_and_matches_its_own_name_only() -> None:
    own = Gpu("l4", "Mine", "", "user", 2**33, "mine", aliases=("lab-card",))
    assert find_gpu("L4", (own,)) is own
    assert find_gpu("Lab Card", (own,)) is own
    assert find_gpu("l40s", (own,)).id == "l40s"
    with pytest.raises(UnknownNameError) as caught:
        find_gpu("lab-crad", (own,))
    assert caught.value.suggestions[0] == "l4"


def test_apple_memory_sizes() -> None:
    assert find_gpu("m3-pro-18gb").total_bytes == pytest.approx(12 * GIB)
    assert find_gpu("m3-pro").total_bytes == 27 * GIB
    assert all(gpu.total_is_estimate and gpu.unified_memory for gpu in WHOLE if gpu.vendor == "Apple")


def test_search() -> None:
    assert {gpu.id for gpu in search_gpus("h100")} == {"h100-sxm", "h100-pcie", "h100-nvl", "h100-96gb"}
    assert {gpu.id for gpu in search_gpus("h100 1g.10gb")} == {"h100-sxm-1g.10gb", "h100-pcie-1g.10gb"}
    assert "rtx-4090" in {gpu.id for gpu in search_gpus("RTX4090")}
    assert search_gpus("no such thing") == ()
    assert len(search_gpus("")) == len(WHOLE)


def test_keys() -> None:
    assert key("NVIDIA A100-SXM4-80GB") == "nvidiaa100sxm80"
    assert key("a10g") == "a10g"
    assert key("a100-80g") == key("A100 80 GB") == key("a10080gb") == "a10080"


def test_a_look_up_loads_no_heavy_module() -> None:
    code = (
        "import sys; before = set(sys.modules)\n"
        "from kvtax.sources.gpus import find_gpu; from kvtax.sources.models import find_model, read_config\n"
        "find_gpu('h100-80'); read_config(find_model('llama-3.1-8b'))\n"
        "heavy = {'difflib', 'pydantic', 'importlib.resources', 'pathlib', 'tomllib', 'dataclasses'}\n"
        "print(sorted(heavy & (set(sys.modules) - before)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
