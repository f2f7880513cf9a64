"""The fixed state that recurrent layers keep for a sequence, whatever its length."""

from __future__ import annotations

from typing import NamedTuple

from kvtax.dtypes import find_dtype


class State(NamedTuple):
    """One array that a recurrent layer keeps per sequence.

    Args:
        role: `conv` (kept in the model dtype) or `recurrent` (kept in the ssm dtype, else float32).
        shape: of one sequence [elements].
        axis: the axis that tensor parallelism splits, -1 for none.
        groups: n_groups of Mamba 2 and the channels that one group adds to `axis`; engines extend groups to the number of ranks.
        dtype: a dtype that the model fixes whatever else is asked for, empty for none.
    """

    role: str
    shape: tuple[int, ...]
    axis: int = 0
    groups: tuple[int, int] = (0, 0)
    dtype: str = ""

    @property
    def elements(self) -> int:
        """Product of the shape [elements]."""
        count = 1
        for size in self.shape:
            count *= size
        return count

    def per_rank(self, tp: int) -> State:
        """The part of one tensor-parallel rank; groups that do not divide are extended to one per rank."""
        if self.axis < 0 or tp == 1:
            return self
        size = self.shape[self.axis]
        n_groups, width = self.groups
        if n_groups and n_groups % tp:
            size += (tp - n_groups) * width if n_groups < tp else (-n_groups % tp) * width
            n_groups = n_groups if n_groups > tp else tp
        shape = list(self.shape)
        shape[self.axis] = -(-size // tp)
        return self._replace(shape=tuple(shape), groups=(-(-n_groups // tp), width))


class Recurrent(NamedTuple):
    """A fixed state per sequence, whatever its length (Mamba 1 and 2, Gated DeltaNet, KDA, linear attention, short conv, RWKV).

    Args:
        variant: mamba1 | mamba2 | gated_delta_net | kimi_delta | linear_attention | short_conv | rwkv | rg_lru.
        states: the arrays kept, conv states with kernel - 1 columns as engines keep them.
        model_dtype: dtype of conv states.
        ssm_dtype: dtype of recurrent states that the config declares; empty: none is declared, float32 is what the model needs.
    """

    variant: str
    states: tuple[State, ...]
    model_dtype: str = "bfloat16"
    ssm_dtype: str = ""

    @property
    def kind(self) -> str:
        """Name of this kind of cache."""
        return "recurrent"

    def state_bytes(self, ssm_dtype: str | None = None, conv_dtype: str | None = None) -> int:
        """Sum over states of elements x bits / 8 [bytes]."""
        total = 0
        for state in self.states:
            name = state.dtype or (
                (conv_dtype or self.model_dtype) if state.role == "conv" else (ssm_dtype or self.ssm_dtype or "float32")
            )
            total += find_dtype(name).bytes(state.elements)
        return total

    def token_bytes(self, dtype: str) -> int:
        """A token adds nothing."""
        return 0

    def tokens_held(self, tokens: int) -> int:
        """None: the state does not hold tokens."""
        return 0

    def bytes(self, tokens: int, dtype: str) -> int:
        """The state, once the request has a token."""
        return self.state_bytes() if tokens else 0

    def growth(self, dtype: str, at: int | None = None) -> int:
        """Nothing."""
        return 0

    def per_rank(self, tp: int) -> Recurrent:
        """What one tensor-parallel rank holds."""
        return self._replace(states=tuple(state.per_rank(tp) for state in self.states)) if tp > 1 else self
