"""The schema elements of a Parquet file as its footer stores them, which Spark's rules need.

pyarrow shows Arrow's interpretation instead: joined names, its own list rules, no Variant, ``ARROW:schema``.
Source: https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from tableferry.formats.parquet.file_metadata import Broken, LogicalType, SchemaElement

# Deeper than any writer's schema, and below Python's recursion limit.
_MOST_DEPTH = 100

PHYSICAL = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BINARY", "FIXED_LEN_BYTE_ARRAY")
_REPETITION = ("required", "optional", "repeated")


class Annotation(NamedTuple):
    """The logical type that a file states for a physical type.

    Attributes:
        kind: The name of Parquet's logical type, such as STRING, DECIMAL or TIMESTAMP.
        unit: MILLIS, MICROS or NANOS of a TIME or TIMESTAMP.
        utc: Whether a TIME or TIMESTAMP is an instant; if not, it's a local time without a time zone.
        version: The version of the VARIANT specification.
    """

    kind: str
    unit: str = ""
    utc: bool = True
    bits: int = 0
    signed: bool = True
    precision: int = 0
    scale: int = 0
    version: int = 0

    def __str__(self) -> str:
        match self.kind:
            case "TIME" | "TIMESTAMP":
                return f"{self.kind}({self.unit},{str(self.utc).lower()})"
            case "INTEGER":
                return f"INTEGER({self.bits},{str(self.signed).lower()})"
            case "DECIMAL":
                return f"DECIMAL({self.precision},{self.scale})"
            case "VARIANT":
                return f"VARIANT({self.version})"
            case _:
                return self.kind


@dataclass(frozen=True)
class Element:
    """A node of a Parquet schema.

    Attributes:
        name: The name as the file spells it.
        repetition: ``required``, ``optional`` or ``repeated``.
        annotation: The logical type; None if the file doesn't state one.
        physical: The physical type of its values; empty for a group.
        length: The number of bytes of a FIXED_LEN_BYTE_ARRAY.
        id: The field id by which some readers find it instead of its name; None if it has no field id.
    """

    name: str
    repetition: str
    annotation: Annotation | None = None
    physical: str = ""
    length: int = 0
    children: tuple[Element, ...] = ()
    id: int | None = None

    def __str__(self) -> str:
        name = self.physical or "group"
        return f"{name} ({self.annotation})" if self.annotation else name


# The older form of logical types: parquet.thrift's ConvertedType, in its order.
_CONVERTED = (
    *(Annotation("STRING"), Annotation("MAP"), Annotation("MAP_KEY_VALUE"), Annotation("LIST")),
    *(Annotation("ENUM"), Annotation("DECIMAL"), Annotation("DATE")),
    *(Annotation(kind, unit=unit) for kind in ("TIME", "TIMESTAMP") for unit in ("MILLIS", "MICROS")),
    *(
        Annotation("INTEGER", bits=bits, signed=signed)
        for signed in (False, True)
        for bits in (8, 16, 32, 64)
    ),
    *(Annotation("JSON"), Annotation("BSON"), Annotation("INTERVAL")),
)


def root(elements: Sequence[SchemaElement]) -> Element:
    """Build the schema tree from the footer's list of elements, which is in depth-first order.

    Raises:
        Broken: The elements aren't a valid schema.
    """
    try:
        nodes = [(_element(element), element.num_children) for element in elements]
        tree, used = _tree(nodes, 0, 0)
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise Broken("no schema") from error
    if used != len(nodes):
        raise Broken("a schema with elements that no group holds")
    return tree


def _tree(elements: Sequence[tuple[Element, int]], at: int, depth: int) -> tuple[Element, int]:
    element, count = elements[at]
    at += 1
    if element.physical:
        return element, at
    if depth > _MOST_DEPTH:
        raise Broken(f"groups in more than {_MOST_DEPTH} others")
    children = []
    for _ in range(count):
        child, at = _tree(elements, at, depth + 1)
        children.append(child)
    return replace(element, children=tuple(children)), at


def _element(element: SchemaElement) -> Element:
    return Element(
        element.name.decode(),
        _REPETITION[_index(element.repetition_type)],
        _annotation(element),
        "" if element.type is None else PHYSICAL[_index(element.type)],
        element.type_length,
        id=element.field_id,
    )


def _index(number: int) -> int:
    if number < 0:
        raise IndexError
    return number


def _annotation(element: SchemaElement) -> Annotation | None:
    """Return an element's logical type; if its ConvertedType differs, that one counts, as in parquet-java."""
    logical = _logical(element.logical_type) if element.logical_type else None
    if element.converted_type is None:
        return logical
    converted = _CONVERTED[_index(element.converted_type)]
    if converted.kind == "DECIMAL":
        converted = converted._replace(precision=element.precision, scale=element.scale)
    if logical is not None and logical._replace(utc=True) == converted:
        return logical
    return converted


def _logical(union: LogicalType) -> Annotation:
    for kind, parameters in vars(union).items():
        match kind:
            case "DECIMAL":
                return Annotation(kind, precision=parameters.precision, scale=parameters.scale)
            case "TIME" | "TIMESTAMP":
                return Annotation(kind, unit=min(vars(parameters.unit)), utc=parameters.utc)
            case "INTEGER":
                return Annotation(kind, bits=parameters.bits, signed=parameters.signed)
            case "VARIANT":
                return Annotation(kind, version=parameters.version)
            case _:
                return Annotation(kind)
    # The decoder skips logical types that its list lacks. Spark doesn't read them either.
    return Annotation("unknown logical type")
