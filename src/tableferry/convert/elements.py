"""The schema of a Parquet file as its footer spells it, before anyone interprets it.

pyarrow shows a schema only after Arrow has interpreted it: names joined by dots, lists by Arrow's rules,
Variant as any other group, and what the ``ARROW:schema`` entry says in the place of what the file holds.
Spark's rules need the elements themselves, so the few kinds of Thrift that they are made of are read here
(https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md,
https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift).
It's done once for each schema that differs, never for each file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

# Deeper than any schema that Spark could plan a query for, and shallow enough for Python's own stack.
_DEEPEST = 100

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
        bits: Of an INTEGER.
        signed: Whether an INTEGER is.
        precision: Digits of a DECIMAL.
        scale: Those of them behind the point.
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
        children: The fields of a group.
    """

    name: str
    repetition: str
    annotation: Annotation | None = None
    physical: str = ""
    length: int = 0
    children: tuple[Element, ...] = ()

    def __str__(self) -> str:
        name = self.physical or "group"
        return f"{name} ({self.annotation})" if self.annotation else name


# What older writers say instead of a logical type: parquet.thrift's ConvertedType, in its order.
_CONVERTED = (
    *(Annotation("STRING"), Annotation("MAP"), Annotation("MAP_KEY_VALUE"), Annotation("LIST")),
    *(Annotation("ENUM"), Annotation("DECIMAL"), Annotation("DATE")),
    *(Annotation("TIME", unit=each) for each in ("MILLIS", "MICROS")),
    *(Annotation("TIMESTAMP", unit=each) for each in ("MILLIS", "MICROS")),
    *(Annotation("INTEGER", bits=each, signed=False) for each in (8, 16, 32, 64)),
    *(Annotation("INTEGER", bits=each) for each in (8, 16, 32, 64)),
    *(Annotation("JSON"), Annotation("BSON"), Annotation("INTERVAL")),
)


def root(footer: bytes) -> tuple[Element, int]:
    """Read the schema at the beginning of a footer.

    Args:
        footer: The file's metadata, without its length and magic.

    Returns:
        The root, and how many of the footer's bytes say so: two footers that begin with the same ones
        have the same schema.

    Raises:
        ValueError: The bytes aren't a footer.
    """
    reader = _Reader(footer)
    try:
        for number, kind in reader.fields():
            if number == 2:
                found = [_element(each) for each in reader.value(kind, 0)]
                end = reader.at
                tree, used = _tree(found, 0, 0)
                if used != len(found):
                    raise ValueError("elements of the schema that no group holds")
                return tree, end
            reader.value(kind, 0)
    except (IndexError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError("not the metadata of a Parquet file") from error
    raise ValueError("no schema")


def _tree(elements: list[tuple[Element, int]], at: int, depth: int) -> tuple[Element, int]:
    element, count = elements[at]
    at += 1
    if element.physical:
        return element, at
    if depth > _DEEPEST:
        raise ValueError(f"groups in more than {_DEEPEST} groups")
    children = []
    for _ in range(count):
        child, at = _tree(elements, at, depth + 1)
        children.append(child)
    return Element(element.name, element.repetition, element.annotation, children=tuple(children)), at


def _element(found: dict[int, Any]) -> tuple[Element, int]:
    physical = PHYSICAL[_index(found[1])] if 1 in found else ""
    repetition = _REPETITION[_index(found.get(3, 0))]
    name = found[4].decode()
    return Element(name, repetition, _annotation(found), physical, int(found.get(2, 0))), found.get(5, 0)


def _index(number: int) -> int:
    if number < 0:
        raise IndexError
    return number


def _annotation(found: dict[int, Any]) -> Annotation | None:
    """Say what a type means; where the two ways to say it differ, the older counts, as in parquet-java."""
    logical = _logical(found[10]) if 10 in found else None
    if 6 not in found:
        return logical
    converted = _CONVERTED[_index(found[6])]
    if converted.kind == "DECIMAL":
        converted = converted._replace(precision=int(found.get(8, 0)), scale=int(found.get(7, 0)))
    if logical is not None and logical._replace(utc=True) == converted:
        return logical
    return converted


def _logical(union: dict[int, Any]) -> Annotation | None:
    for number, said in union.items():
        kind = _LOGICAL.get(number, f"number {number}")
        match kind:
            case "DECIMAL":
                return Annotation(kind, precision=int(said[2]), scale=int(said[1]))
            case "TIME" | "TIMESTAMP":
                return Annotation(kind, unit=_UNITS[next(iter(said[2]))], utc=bool(said[1]))
            case "INTEGER":
                return Annotation(kind, bits=int(said[1]), signed=bool(said[2]))
            case "VARIANT":
                return Annotation(kind, version=int(said.get(1, 1)))
            case _:
                return Annotation(kind)
    return None


class _Reader:
    """Thrift's compact protocol: structs become dictionaries by field number, strings stay bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def fields(self) -> Any:
        """Go through the fields of a struct; the caller takes each value before the next field."""
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._integer()
            yield number, head & 15

    def value(self, kind: int, depth: int) -> Any:
        """Read a value of one of Thrift's kinds."""
        if depth > _DEEPEST:
            raise ValueError("nested too deep")
        match kind:
            case 1 | 2:
                return kind == 1
            case 3:
                return int.from_bytes(self._bytes(1), signed=True)
            case 4 | 5 | 6:
                return self._integer()
            case 7:
                return self._bytes(8)
            case 8:
                return self._bytes(self._length())
            case 9 | 10:
                head = self._byte()
                count = head >> 4 if head >> 4 < 15 else self._length()
                # An element takes a byte at least, so that no number in a broken file makes a long list.
                if count > len(self.data) - self.at:
                    raise IndexError
                return [self._item(head & 15, depth) for _ in range(count)]
            case 12:
                return {number: self.value(kind, depth + 1) for number, kind in self.fields()}
            case _:
                raise ValueError(f"no kind of Thrift's: {kind}")

    def _item(self, kind: int, depth: int) -> Any:
        return self._byte() == 1 if kind in (1, 2) else self.value(kind, depth + 1)

    def _byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def _bytes(self, count: int) -> bytes:
        self.at += count
        if self.at > len(self.data):
            raise IndexError
        return self.data[self.at - count : self.at]

    def _length(self) -> int:
        found = shift = 0
        while True:
            byte = self._byte()
            found |= (byte & 127) << shift
            if byte < 128:
                return found
            shift += 7
            if shift > 63:
                raise ValueError("a number of more than 64 bits")

    def _integer(self) -> int:
        raw = self._length()
        return (raw >> 1) ^ -(raw & 1)
