"""When decoding stops being bound by memory bandwidth: the batch that compute could carry."""

from __future__ import annotations


def compute_bound_batch(
    weights_bytes: int, kv_bytes_per_request: int, active_parameters: int, flops: int, bandwidth_bytes_per_second: int
) -> float | None:
    """Requests in a decode step from which arithmetic takes longer than reading weights and KV; None where it never does.

    batch * 2 * active_parameters / flops = (weights_bytes + batch * kv_bytes_per_request) / bandwidth, solved for batch

    Args:
        weights_bytes: read once a step [bytes].
        kv_bytes_per_request: read for each request; 0 for the batch without attention [bytes].
        active_parameters: that one token uses [parameters].
        flops: dense, of the dtype that computes [1/s].
        bandwidth_bytes_per_second: of the card's memory [bytes/s].

    Returns:
        The batch [requests], or None: reading one more request's KV takes longer than its arithmetic.

    Valid: decode with one token a request; a mixture of experts reads all its experts once the batch is large.

    Source: roofline model, arithmetic intensity of decoding.

    >>> round(compute_bound_batch(16_060_522_496, 0, 8_030_261_248, 312_000_000_000_000, 2_039_000_000_000))
    153
    """
    seconds_compute = 2 * active_parameters / flops
    seconds_kv = kv_bytes_per_request / bandwidth_bytes_per_second
    if seconds_compute <= seconds_kv:
        return None
    return weights_bytes / bandwidth_bytes_per_second / (seconds_compute - seconds_kv)
