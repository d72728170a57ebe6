"""The schema of a Parquet file as its footer spells it, before anyone interprets it.

pyarrow shows a schema only after Arrow has interpreted it: names joined by dots, lists by Arrow's rules,
Variant as any other group, and what the ``ARROW:schema`` entry says in the place of what the file holds.
Spark's rules need the elements themselves
(https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tableferry.convert.parquet.thrift import DEEPEST, Broken

PHYSICAL = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BINARY", "FIXED_LEN_BYTE_ARRAY")
_REPETITION = ("required", "optional", "repeated")
_UNITS = {1: "MILLIS", 2: "MICROS", 3: "NANOS"}
_LOGICAL = dict(
    enumerate(
        (
            *("STRING", "MAP", "LIST", "ENUM", "DECIMAL", "DATE", "TIME", "TIMESTAMP", ""),
            *("INTEGER", "UNKNOWN", "JSON", "BSON", "UUID", "FLOAT16", "VARIANT", "GEOMETRY", "GEOGRAPHY"),
        ),
        start=1,
    )
)


class Annotation(NamedTuple):
    """What a file says a physical type means.

    Attributes:
        kind: STRING, DECIMAL, TIMESTAMP and so on, by the names of Parquet's logical types.
        unit: MILLIS, MICROS or NANOS of a TIME or TIMESTAMP.
        utc: Whether a TIME or TIMESTAMP is an instant; otherwise it's what a clock on the wall showed.
        version: Of the VARIANT specification.
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
        name: As the file spells it.
        repetition: ``required``, ``optional`` or ``repeated``.
        annotation: What its type means; None if the file doesn't say.
        physical: How its values are stored; empty for a group.
        length: Bytes of a FIXED_LEN_BYTE_ARRAY.
        id: The number by which some readers find it, whatever its name; None if it has none.
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


# What older writers say instead of a logical type: parquet.thrift's ConvertedType, in its order.
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


def root(elements: list[dict[int, Any]]) -> Element:
    """Build the tree that a footer holds as a list, depth first, of SchemaElements by field number.

    Raises:
        Broken: They aren't a schema.
    """
    try:
        nodes = [_element(fields) for fields in elements]
        tree, used = _tree(nodes, 0, 0)
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise Broken("no schema") from error
    if used != len(nodes):
        raise Broken("a schema with elements that no group holds")
    return tree


def _tree(elements: list[tuple[Element, int]], at: int, depth: int) -> tuple[Element, int]:
    element, count = elements[at]
    at += 1
    if element.physical:
        return element, at
    if depth > DEEPEST:
        raise Broken(f"groups in more than {DEEPEST} others")
    children = []
    for _ in range(count):
        child, at = _tree(elements, at, depth + 1)
        children.append(child)
    return replace(element, children=tuple(children)), at


def _element(fields: dict[int, Any]) -> tuple[Element, int]:
    physical = PHYSICAL[_index(fields[1])] if 1 in fields else ""
    repetition = _REPETITION[_index(fields.get(3, 0))]
    name = fields[4].decode()
    element = Element(
        name, repetition, _annotation(fields), physical, int(fields.get(2, 0)), id=fields.get(9)
    )
    return element, fields.get(5, 0)


def _index(number: int) -> int:
    if number < 0:
        raise IndexError
    return number


def _annotation(fields: dict[int, Any]) -> Annotation | None:
    """Say what a type means; where the two ways to say it differ, the older counts, as in parquet-java."""
    logical = _logical(fields[10]) if 10 in fields else None
    if 6 not in fields:
        return logical
    converted = _CONVERTED[_index(fields[6])]
    if converted.kind == "DECIMAL":
        converted = converted._replace(precision=int(fields.get(8, 0)), scale=int(fields.get(7, 0)))
    if logical is not None and logical._replace(utc=True) == converted:
        return logical
    return converted


def _logical(union: dict[int, Any]) -> Annotation | None:
    for number, parameters in union.items():
        kind = _LOGICAL.get(number, f"number {number}")
        match kind:
            case "DECIMAL":
                return Annotation(kind, precision=int(parameters[2]), scale=int(parameters[1]))
            case "TIME" | "TIMESTAMP":
                return Annotation(kind, unit=_UNITS[min(parameters[2])], utc=bool(parameters[1]))
            case "INTEGER":
                return Annotation(kind, bits=int(parameters[1]), signed=bool(parameters[2]))
            case "VARIANT":
                return Annotation(kind, version=int(parameters.get(1, 1)))
            case _:
                return Annotation(kind)
    return None
