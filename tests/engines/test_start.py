"""Whether vLLM finds enough free memory to start (starts of real servers, named beside each), and odd blocks."""

import pytest

import kvtax


@pytest.mark.parametrize(
    ("model", "gpu", "more"),
    [
        # kyuz0/amd-r9700-vllm-toolboxes, meta-llama_Meta-Llama-3.1-8B-Instruct_tp2_server.log
        ("llama-3.1-8b", "r9700", {"tp": 2, "gpu_memory_utilization": 0.98, "max_model_len": 65536}),
        # vllm-project/vllm#40256
        (
            "llama-3.1-70b",
            "rtx-4090",
            {"tp": 2, "gpu_memory_utilization": 0.97, "quantization": "awq-int4", "context": 8192},
        ),
        # djangodevreng/dgx-spark-benchmarks _bootlog.txt
        ("Qwen/Qwen3.6-35B-A3B", "dgx-spark", {"gpu_memory_utilization": 0.95, "max_model_len": 131072}),
        # four cards of 24 GB at the default share, as people run them
        ("llama-3.1-70b", "rtx-3090", {"tp": 4, "quantization": "awq-int4", "context": 8192}),
    ],
)
def test_an_estimate_of_what_is_taken_refuses_no_start_that_was_seen(model, gpu, more):
    found = kvtax.budget(model=model, gpu=gpu, **more)
    assert found.verdict == "fits"
    assert found.unallocated_bytes >= 0
    assert "start-is-tight" in [notice.code for notice in found.notices]


def test_what_is_said_to_be_free_decides():
    said = {"model": "llama-3-8b", "gpu": "a100-80"}
    assert kvtax.budget(**said, free_memory="70GiB").verdict == "out_of_memory"
    found = kvtax.budget(**said, free_memory="75GiB")
    assert found.verdict == "fits"
    assert "start-is-tight" not in [notice.code for notice in found.notices]


def test_a_share_that_leaves_less_than_any_context_takes_is_refused():
    assert kvtax.budget(model="qwen3-0.6b", gpu="t4", gpu_memory_utilization=0.99).verdict == "out_of_memory"


@pytest.mark.parametrize("block_size", [1, 7, 64, 256])
def test_a_block_smaller_than_a_compressed_row_still_has_a_page(block_size):
    found = kvtax.budget(model="deepseek-ai/DeepSeek-V4-Flash", gpu="h200", tp=4, block_size=block_size)
    assert found.kv_bytes_per_request >= found.live_bytes_per_request
    given = kvtax.budget(model="deepseek-ai/DeepSeek-V4-Flash", gpu="h200", tp=4)
    assert block_size != 256 or found.kv_bytes_per_request == given.kv_bytes_per_request
