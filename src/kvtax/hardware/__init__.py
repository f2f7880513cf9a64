"""What a GPU is: how much memory an engine sees on it, how fast that memory is, and what it can compute with."""

from __future__ import annotations

from kvtax.hardware.gpu import Gpu, Price

__all__ = ["Gpu", "Price"]
