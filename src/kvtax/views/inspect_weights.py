"""The weights of a model by component, and tensor by tensor, as tables of a page."""

from __future__ import annotations

from collections.abc import Iterator

from kvtax.planning.anatomy import Anatomy, ComponentWeights
from kvtax.units import Unit, common_unit, format_count, format_share
from kvtax.views.page import Cell, Column, Grid, Row

_COMPONENTS = {
    "embedding": "embedding", "attention": "attention", "linear_or_ssm": "linear attention, SSM", "mlp": "MLP", "router": "router",
    "routed_experts": "routed experts", "shared_experts": "shared experts", "norms": "norms", "lm_head": "output head",
    "vision": "vision tower", "audio": "audio tower", "other": "other", "mtp": "MTP", "buffers": "buffers",
    "not_loaded": "in the files only",
}  # fmt: skip
_SEEN = 5 * 2**20


def weights_unit(anatomy: Anatomy) -> Unit:
    """The unit that shows the weights as a whole, with two digits."""
    return common_unit([anatomy.architecture.weight_bytes()])._replace(digits=2)


def weights_block(anatomy: Anatomy) -> Grid:
    """Parameters and bytes by component, with shares."""
    architecture = anatomy.architecture
    total = architecture.weight_bytes()
    unit = weights_unit(anatomy)
    columns = (
        Column("Weights", "component"),
        Column("parameters", "parameters", right=True),
        Column(unit.name, "bytes", right=True),
        Column("share", right=True),
        Column("", bar=True),
    )
    rows = [
        _weight_row(part, total, unit) for part in anatomy.components if part.loaded and part.component != "buffers"
    ]
    whole = (
        Cell("as loaded", None, "strong"),
        Cell(format_count(architecture.parameters), architecture.parameters, "strong"),
        Cell(unit.show(total), total, "strong"),
        Cell(format_share(1.0), None, "strong"),
        Cell("", 0),
    )
    rows.append(Row(whole))
    rows += [_beside_row(part, unit) for part in _beside(anatomy)]
    return Grid("weights", "Weights", columns, tuple(rows), tuple(_weight_remarks(anatomy)))


def _weight_row(part: ComponentWeights, total: int, unit: Unit) -> Row:
    share = part.bytes / total if total else 0.0
    return Row(
        (
            Cell(_COMPONENTS.get(part.component, part.component), part.component),
            Cell(format_count(part.parameters), part.parameters),
            Cell(unit.show(part.bytes), part.bytes),
            Cell(format_share(share)),
            Cell("", share),
        )
    )


def _beside(anatomy: Anatomy) -> list[ComponentWeights]:
    """What stands beside the parameters; buffers only where they show."""
    return [
        part for part in anatomy.components if not part.loaded or (part.component == "buffers" and part.bytes >= _SEEN)
    ]


def _beside_row(part: ComponentWeights, unit: Unit) -> Row:
    return Row(
        (
            Cell(_COMPONENTS[part.component], part.component, "dim"),
            Cell(format_count(part.parameters) if part.parameters else "", part.parameters, "dim"),
            Cell(unit.show(part.bytes), part.bytes, "dim"),
            Cell(""),
            Cell("", 0),
        )
    )


def _weight_remarks(anatomy: Anatomy) -> Iterator[str]:
    components = {part.component for part in anatomy.components}
    if "lm_head" not in components and anatomy.architecture.vocab_size and anatomy.architecture.kind != "encoder":
        yield "The output head is tied to the embedding: one tensor, counted once."
    beside = {part.component for part in _beside(anatomy)}
    if "not_loaded" in beside:
        yield "In the files only: MTP layers and copies that serving does not load."
    if "buffers" in beside:
        yield "Buffers are loaded, and are no parameters."


def tensors_block(anatomy: Anatomy) -> Grid:
    """Every group of tensors as the files store it."""
    columns = (
        Column("Tensors", "name", fold=True),
        Column("shape", "shape", right=True),
        Column("dtype", "dtype"),
        Column("count", "count", right=True),
        Column("bytes", "bytes", right=True),
        Column("component", "component", from_width=100),
    )
    rows = []
    for stored in anatomy.architecture.stored_tensors():
        tensor = stored.source
        tone = "" if tensor.loaded else "dim"
        shape = " x ".join(map(str, stored.shape)) or "scalar"
        rows.append(
            Row(
                (
                    Cell(stored.name, stored.name, tone),
                    Cell(shape, None, tone),
                    Cell(stored.dtype, None, tone),
                    Cell(f"{stored.copies:,}", stored.copies, tone),
                    Cell(f"{stored.bytes:,}", stored.bytes, tone),
                    Cell(_COMPONENTS.get(tensor.component, tensor.component), tensor.component, tone),
                )
            )
        )
    return Grid("tensors", "Tensors", columns, tuple(rows), ("A * stands for the number of a layer or of an expert.",))
