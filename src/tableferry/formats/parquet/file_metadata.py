"""The fields of a Parquet footer that a conversion reads; Thrift decodes them and skips all other fields.

Classes and field numbers are those of
https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, TypeAlias

from thrift.protocol.TBase import TBase
from thrift.protocol.TCompactProtocol import TCompactProtocolAccelerated
from thrift.Thrift import TException, TType
from thrift.transport.TTransport import TMemoryBuffer

Spec: TypeAlias = tuple[Any, ...]

# The header of field 2 as a boolean, whose value takes no bytes. Thrift skips it because the specification
# doesn't list it, and counts the numbers of the following fields from it.
_AFTER_SCHEMA = b"\x21"


class Broken(ValueError):
    """The bytes aren't a valid footer."""


def _spec(*fields: tuple[Any, ...]) -> Spec:
    """Build a `thrift_spec`: each field at the index of its number, and None for fields that are skipped."""
    by_number = {field[0]: (*field, None, None)[:4] for field in fields}
    return tuple(
        (*by_number[number], None) if number in by_number else None
        for number in range(max(by_number, default=-1) + 1)
    )


def _struct(number: int, name: str, of: type[TBase]) -> tuple[Any, ...]:
    return number, TType.STRUCT, name, [of, of.thrift_spec]


def _structs(number: int, name: str, of: type[TBase]) -> tuple[Any, ...]:
    return number, TType.LIST, name, (TType.STRUCT, [of, of.thrift_spec], False)


def _integer(number: int, name: str, kind: int = TType.I64) -> tuple[Any, ...]:
    return number, kind, name


def _bytes(number: int, name: str) -> tuple[Any, ...]:
    return number, TType.STRING, name, "BINARY"


class Empty(TBase):
    """A struct whose fields aren't read; only its presence counts."""

    thrift_spec: ClassVar[Spec] = ()


class DecimalType(TBase):
    """Parameters of DECIMAL."""

    thrift_spec: ClassVar[Spec] = _spec(_integer(1, "scale", TType.I32), _integer(2, "precision", TType.I32))
    scale: int
    precision: int


class TimeUnit(TBase):
    """A unit, stored in the attribute with its name."""

    thrift_spec: ClassVar[Spec] = _spec(
        _struct(1, "MILLIS", Empty), _struct(2, "MICROS", Empty), _struct(3, "NANOS", Empty)
    )


class TimeType(TBase):
    """Parameters of TIME and TIMESTAMP."""

    thrift_spec: ClassVar[Spec] = _spec((1, TType.BOOL, "utc"), _struct(2, "unit", TimeUnit))
    utc: bool
    unit: TimeUnit


class IntegerType(TBase):
    """Parameters of INTEGER."""

    thrift_spec: ClassVar[Spec] = _spec(_integer(1, "bits", TType.BYTE), (2, TType.BOOL, "signed"))
    bits: int
    signed: bool


class VariantType(TBase):
    """Parameters of VARIANT."""

    thrift_spec: ClassVar[Spec] = _spec(_integer(1, "version", TType.BYTE))
    version: int = 1


_LOGICAL_TYPES: dict[str, type[TBase]] = {
    **dict.fromkeys(("STRING", "MAP", "LIST", "ENUM"), Empty),
    "DECIMAL": DecimalType,
    "DATE": Empty,
    **dict.fromkeys(("TIME", "TIMESTAMP"), TimeType),
    # Reserved for INTERVAL, which no writer uses.
    "number 9": Empty,
    "INTEGER": IntegerType,
    **dict.fromkeys(("UNKNOWN", "JSON", "BSON", "UUID", "FLOAT16"), Empty),
    "VARIANT": VariantType,
    **dict.fromkeys(("GEOMETRY", "GEOGRAPHY"), Empty),
}


class LogicalType(TBase):
    """A logical type's parameters, in the attribute with its name; no attribute if its number is unknown."""

    thrift_spec: ClassVar[Spec] = _spec(
        *(_struct(number, name, of) for number, (name, of) in enumerate(_LOGICAL_TYPES.items(), 1))
    )


class SchemaElement(TBase):
    """A node of the schema; the footer stores nodes in depth-first order."""

    thrift_spec: ClassVar[Spec] = _spec(
        _integer(1, "type", TType.I32),
        _integer(2, "type_length", TType.I32),
        _integer(3, "repetition_type", TType.I32),
        _bytes(4, "name"),
        _integer(5, "num_children", TType.I32),
        _integer(6, "converted_type", TType.I32),
        _integer(7, "scale", TType.I32),
        _integer(8, "precision", TType.I32),
        _integer(9, "field_id", TType.I32),
        _struct(10, "logical_type", LogicalType),
    )
    type: int | None = None
    type_length: int = 0
    repetition_type: int = 0
    name: bytes
    num_children: int = 0
    converted_type: int | None = None
    scale: int = 0
    precision: int = 0
    field_id: int | None = None
    logical_type: LogicalType | None = None


class Statistics(TBase):
    """Statistics of a column chunk."""

    thrift_spec: ClassVar[Spec] = _spec(
        _bytes(1, "max"),
        _bytes(2, "min"),
        _integer(3, "null_count"),
        _bytes(5, "max_value"),
        _bytes(6, "min_value"),
        _integer(9, "nan_count"),
    )
    max: bytes | None = None
    min: bytes | None = None
    null_count: int | None = None
    max_value: bytes | None = None
    min_value: bytes | None = None
    nan_count: int | None = None


class ColumnMetaData(TBase):
    """The contents of a column chunk and its position in the file."""

    thrift_spec: ClassVar[Spec] = _spec(
        _integer(1, "type", TType.I32),
        (2, TType.LIST, "encodings", (TType.I32, None, False)),
        (3, TType.LIST, "path_in_schema", (TType.STRING, "BINARY", False)),
        _integer(5, "num_values"),
        _integer(7, "total_compressed_size"),
        _integer(9, "data_page_offset"),
        _integer(11, "dictionary_page_offset"),
        _struct(12, "statistics", Statistics),
    )
    type: int = -1
    encodings: Sequence[int] = ()
    path_in_schema: Sequence[bytes] = ()
    num_values: int | None = None
    total_compressed_size: int | None = None
    data_page_offset: int = 0
    dictionary_page_offset: int | None = None
    statistics: Statistics = Statistics()


class ColumnChunk(TBase):
    """A column of a row group."""

    thrift_spec: ClassVar[Spec] = _spec(
        _bytes(1, "file_path"), _struct(3, "meta_data", ColumnMetaData), _struct(8, "crypto_metadata", Empty)
    )
    file_path: bytes = b""
    meta_data: ColumnMetaData | None = None
    crypto_metadata: Empty | None = None


class RowGroup(TBase):
    """A row group."""

    thrift_spec: ClassVar[Spec] = _spec(_structs(1, "columns", ColumnChunk), _integer(3, "num_rows"))
    columns: Sequence[ColumnChunk] = ()
    num_rows: int = -1


class KeyValue(TBase):
    """An entry of the footer's key-value metadata."""

    thrift_spec: ClassVar[Spec] = _spec(_bytes(1, "key"), _bytes(2, "value"))
    key: bytes = b""
    value: bytes = b""


class ColumnOrder(TBase):
    """The order that a column's bounds follow."""

    thrift_spec: ClassVar[Spec] = _spec(_struct(1, "type_order", Empty), _struct(2, "total_order", Empty))
    type_order: Empty | None = None
    total_order: Empty | None = None


class FileMetaData(TBase):
    """A footer, without its schema."""

    thrift_spec: ClassVar[Spec] = _spec(
        _integer(3, "num_rows"),
        _structs(4, "row_groups", RowGroup),
        _structs(5, "key_value_metadata", KeyValue),
        _bytes(6, "created_by"),
        _structs(7, "column_orders", ColumnOrder),
        _struct(8, "encryption_algorithm", Empty),
    )
    num_rows: int = -1
    row_groups: Sequence[RowGroup] = ()
    key_value_metadata: Sequence[KeyValue] = ()
    created_by: bytes = b""
    column_orders: Sequence[ColumnOrder] = ()
    encryption_algorithm: Empty | None = None


class _SchemaComplete(Exception):
    """Stop decoding after the schema."""


class _SchemaReader(TBase):
    """Decode the schema, and stop there."""

    thrift_spec: ClassVar[Spec] = _spec(_structs(2, "schema", SchemaElement))
    schema: Sequence[SchemaElement] = ()

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        raise _SchemaComplete


class _Protocol(TCompactProtocolAccelerated):
    """The compact protocol, with Thrift's compiled decoder or its decoder in Python."""

    def readString(self) -> Any:
        # The decoder in Python decodes even skipped strings as UTF-8, but some of them are binary bounds.
        return self.readBinary()


def decode_schema(footer: bytes) -> tuple[Sequence[SchemaElement], int]:
    """Return a footer's schema elements and the offset of the first byte after the schema.

    Raises:
        Broken: The footer has no valid schema.
    """
    reader, buffer = _SchemaReader(), TMemoryBuffer(footer)
    try:
        _decode(reader, buffer, len(footer))
    except _SchemaComplete:
        return reader.schema, buffer.cstringio_buf.tell()
    raise Broken("no schema")


def decode_after_schema(footer: bytes, offset: int) -> FileMetaData:
    """Decode a footer from ``offset``, the first byte after its schema.

    Raises:
        Broken: The bytes aren't a valid footer.
    """
    metadata = FileMetaData()
    _decode(metadata, TMemoryBuffer(_AFTER_SCHEMA + footer[offset:]), len(footer))
    return metadata


def _decode(struct: TBase, buffer: TMemoryBuffer, limit: int) -> None:
    # Each item takes at least one byte, so a length above the footer's is invalid. With these limits, Thrift
    # allocates no memory for it. Thrift also limits the depth, even of skipped fields.
    protocol = _Protocol(buffer, string_length_limit=limit, container_length_limit=limit)
    try:
        struct.read(protocol)
    except EOFError as error:
        raise Broken("an end where there should be more") from error
    except (TException, ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as error:
        raise Broken(str(error) or type(error).__name__) from error
