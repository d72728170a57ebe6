"""Partition columns: inferred from directories, declared, and compared."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import conditions

from tableferry.errors import Refused
from tableferry.formats.hive.partition_columns import parse_partition_columns
from tableferry.formats.hive.partition_inference import Partitions, check, infer
from tableferry.formats.hive.partitions import PartitionColumn
from tableferry.formats.parquet.files import DataFile
from tableferry.spark.types import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Decimal,
    Primitive,
)

NULL = "__HIVE_DEFAULT_PARTITION__"


def files(*paths: str) -> list[DataFile]:
    return [DataFile(path, 1, 1) for path in paths]


def inferred(*texts: str) -> Partitions:
    """Infer the column ``p`` from directories with these values."""
    return infer(files(*(f"p={text}/f" for text in texts)))


def column(partitions: Partitions) -> tuple[str, list[str | None]]:
    (only,) = partitions.columns
    return str(only), [value for (value,) in partitions.values]


@pytest.mark.parametrize(
    ("texts", "type_", "values"),
    [
        (["1", "-5", "0"], "int", ["1", "-5", "0"]),
        (["2147483647", "-2147483648"], "int", ["2147483647", "-2147483648"]),
        (["1", "2147483648"], "bigint", ["1", "2147483648"]),
        (["-9223372036854775808"], "bigint", ["-9223372036854775808"]),
        (["9223372036854775808"], "string", ["9223372036854775808"]),
        (["1", NULL, ""], "int", ["1", None, None]),
        (["2024-02-29", NULL], "date", ["2024-02-29", None]),
        (["2023-02-29"], "string", ["2023-02-29"]),
        (["2024-1-1"], "string", ["2024-1-1"]),
        (["20240101"], "int", ["20240101"]),
        (["2024-01-01 10%3A00%3A00"], "timestamp", ["2024-01-01T10:00:00.000000Z"]),
        (["2024-01-01 10:00:00.5"], "timestamp", ["2024-01-01T10:00:00.500000Z"]),
        (["0999-01-01 10:00:00.000001"], "timestamp", ["0999-01-01T10:00:00.000001Z"]),
        (["2024-01-01 24:00:00"], "string", ["2024-01-01 24:00:00"]),
        (["2024-01-01 10:00"], "string", ["2024-01-01 10:00"]),
        (["2024-01-01T10:00:00Z"], "string", ["2024-01-01T10:00:00Z"]),
        (["1.5"], "string", ["1.5"]),
        (["true"], "string", ["true"]),
        (["٣"], "string", ["٣"]),
        ([" 5"], "string", [" 5"]),
        (["1_000"], "string", ["1_000"]),
        (["9" * 5000], "string", ["9" * 5000]),
        ([NULL, ""], "string", [None, None]),
        (["a=b", "a%3Db"], "string", ["a=b", "a=b"]),
    ],
)
def test_partition_types_are_inferred(texts: list[str], type_: str, values: list[str | None]) -> None:
    assert column(inferred(*texts)) == (f"p {type_}", values)


@pytest.mark.parametrize(
    ("escaped", "text"),
    [
        ("a%2Fb%3A", "a/b:"),
        ("a%252F", "a%2F"),
        ("a%2f", "a/"),
        ("100%", "100%"),
        ("%zz%4", "%zz%4"),
        ("%%41", "%A"),
        ("a+b c", "a+b c"),
        ("ö", "ö"),
        ("%00", "\0"),
        ("Malm%C3%B6", "Malmö"),
        ("Malm%F6", "Malmö"),
        ("%5F%5FHIVE_DEFAULT_PARTITION__", NULL),
    ],
)
def test_partition_names_are_decoded_once(escaped: str, text: str) -> None:
    assert column(inferred(escaped)) == ("p string", [text])
    partitions = infer(files(f"{escaped}=1/f"))
    assert [partition.name for partition in partitions.columns] == [text]


def test_percent_encodings_that_spark_decodes_differently_are_reported() -> None:
    assert inferred("Malm%C3%B6", "Malm%3A").notes == (
        "'p=Malm%C3%B6' is read as 'p=Malmö', as UTF-8; Spark reads such a name one character per octet",
    )


@pytest.mark.parametrize(
    ("texts", "note"),
    [
        (
            ["10", "07"],
            "p is a string: as a number '07' would be 7; declare the partition columns to have it as a",
        ),
        (["1", "+2"], "p is a string: as a number '+2' would be 2"),
        (["1", "01"], "p is a string: as a number '01' would be 1"),
        (["-0"], "p is a string: as a number '-0' would be 0"),
        (["1", "x"], "p is a string: its values look like several types: int ('1'), string ('x')"),
        (
            ["1", "2024-01-01"],
            "p is a string: its values look like several types: int ('1'), date ('2024-01-01')",
        ),
        (
            ["2024-01-01 00:00:00", "2024-01-01"],
            "p is a string: its values look like several types: timestamp ('2024-01-01 00:00:00')",
        ),
        (
            ["2024-01-01 00:00:00", "2024-01-01 00:00:00.0"],
            "p is a string: '2024-01-01 00:00:00' and '2024-01-01 00:00:00.0' are the same value of p",
        ),
        ([NULL], "p is a string: all its values are null"),
    ],
)
def test_column_that_became_string_is_reported(texts: list[str], note: str) -> None:
    partitions = inferred(*texts)
    assert column(partitions) == ("p string", [None if text == NULL else text for text in texts])
    assert len(partitions.notes) == 1
    assert partitions.notes[0].startswith(note)


def test_time_zone_of_timestamp_partitions_is_reported() -> None:
    assert inferred("2024-01-01 00:00:00").notes == ("p: times without a zone are taken as UTC",)
    assert inferred("1", "2").notes == inferred("x", "y").notes == inferred("2024-01-01").notes == ()


def test_files_of_one_directory_share_partition_values() -> None:
    partitions = infer(files("a=1/b=x/f", "a=1/b=x/g", "a=1/b=y/f", "a=1/b=x/more/f"))
    assert partitions.columns == (PartitionColumn("a", INTEGER), PartitionColumn("b", STRING))
    assert partitions.values == (("1", "x"), ("1", "x"), ("1", "y"), ("1", "x"))
    assert partitions.values[0] is partitions.values[1]


def test_folder_without_partition_directories_has_no_partition_columns() -> None:
    assert infer(files("f", "a=b.parquet")) == Partitions((), ((), ()))
    assert infer([]) == Partitions((), ())


def test_plain_directories_are_no_partitions() -> None:
    partitions = infer(files("data/p=1/f", "data/p=2/HIVE_UNION_SUBDIR_1/f", "data/p=2/g"))
    assert column(partitions) == ("p int", ["1", "2", "2"])
    assert partitions.notes == ()
    assert infer(files("a/f", "b/f", "g")).notes == (
        "the files of 2 directories, such as a and b, are taken as one table; if each is a table, name them "
        "one by one or their parent with --recursive",
    )


@pytest.mark.parametrize(
    ("paths", "condition", "parameters"),
    [
        (
            ["a=1/f", "a=1/g", "root"],
            "PARTITION_COLUMNS_DIFFER",
            {"files": "1 file", "file": "root", "columns": "[]", "other": "a=1/f", "other_columns": "[`a`]"},
        ),
        (
            ["a=1/b=1/f", "a=1/b=2/f", "a=2/f", "a=3/f", "a=3/g"],
            "PARTITION_COLUMNS_DIFFER",
            {
                "files": "2 files",
                "file": "a=1/b=1/f",
                "columns": "[`a`, `b`]",
                "other": "a=2/f",
                "other_columns": "[`a`]",
            },
        ),
        (
            ["a=1/f", "a=2/f", "b=1/f"],
            "PARTITION_COLUMNS_DIFFER",
            {"file": "b=1/f", "columns": "[`b`]", "other": "a=1/f", "other_columns": "[`a`]"},
        ),
        (
            ["a=1/b=1/f", "a=1/b=1/g", "b=1/a=1/f"],
            "PARTITION_COLUMNS_DIFFER",
            {"file": "b=1/a=1/f", "columns": "[`b`, `a`]"},
        ),
        (
            ["Year=1/f", "year=2/f"],
            "PARTITION_COLUMNS_SPELLED_DIFFERENTLY",
            {"file": "Year=1/f", "other": "year=2/f", "columns": "[`Year`]", "other_columns": "[`year`]"},
        ),
        (["a=1/a=2/f"], "DUPLICATE_PARTITION_DIRECTORY", {"file": "a=1/a=2/f", "column": "a"}),
        (["a=1/A=1/f"], "DUPLICATE_PARTITION_DIRECTORY", {"file": "a=1/A=1/f", "column": "a"}),
        (["a=1/%61=1/f"], "DUPLICATE_PARTITION_DIRECTORY", {"file": "a=1/%61=1/f", "column": "a"}),
        (["a=1/x/b=2/f"], "PARTITION_DIRECTORY_BETWEEN", {"file": "a=1/x/b=2/f", "directory": "x"}),
        (["=1/f"], "PARTITION_DIRECTORY_WITHOUT_COLUMN", {"file": "=1/f", "directory": "=1"}),
        (
            ["orders/a=1/f", "returns/a=1/f"],
            "PARTITIONS_BELOW_DIFFERENT_DIRECTORIES",
            {"file": "orders/a=1/f", "other": "returns/a=1/f"},
        ),
    ],
)
def test_inconsistent_partition_directories_are_refused(
    paths: list[str], condition: str, parameters: dict[str, str]
) -> None:
    with conditions.raises(condition, **parameters):
        infer(files(*paths))


def test_declared_columns_are_parsed_as_sql() -> None:
    assert parse_partition_columns(
        "year INT, `a ``b``, c` decimal(10, 2),d:bigint ,e Decimal, f long,g numeric(5)"
    ) == (
        PartitionColumn("year", INTEGER),
        PartitionColumn("a `b`, c", Decimal(10, 2)),
        PartitionColumn("d", LONG),
        PartitionColumn("e", Decimal(10, 0)),
        PartitionColumn("f", LONG),
        PartitionColumn("g", Decimal(5, 0)),
    )
    types = {
        "tinyint": BYTE,
        "smallint": SHORT,
        "int": INTEGER,
        "bigint": LONG,
        "float": FLOAT,
        "double": DOUBLE,
        "boolean": BOOLEAN,
        "string": STRING,
        "binary": BINARY,
        "date": DATE,
        "timestamp": TIMESTAMP,
        "timestamp_ntz": TIMESTAMP_NTZ,
    }
    assert [
        partition.type
        for partition in parse_partition_columns(", ".join(f"c_{name} {name}" for name in types))
    ] == [*types.values()]


@pytest.mark.parametrize(
    ("text", "condition", "parameters"),
    [
        ("", "PARTITION_DECLARATION_SYNTAX", {"number": 1, "rest": ""}),
        ("year int,", "PARTITION_DECLARATION_SYNTAX", {"number": 1, "rest": "year int,"}),
        (
            "year int,, month int",
            "PARTITION_DECLARATION_SYNTAX",
            {"number": 2, "rest": re.compile("^, month")},
        ),
        (
            "year, month int",
            "PARTITION_DECLARATION_WITHOUT_TYPE",
            {"column": "year", "types": re.compile("^tinyint, ")},
        ),
        ("a int, b array<int>", "PARTITION_DECLARATION_TYPE", {"column": "b", "type": "array<int>"}),
        ("a int not null", "PARTITION_DECLARATION_TYPE", {"column": "a", "type": "int not null"}),
        ("a varchar(10)", "PARTITION_DECLARATION_TYPE", {"column": "a", "type": "varchar(10)"}),
        ("a variant", "PARTITION_DECLARATION_TYPE", {"column": "a", "type": "variant"}),
        ("a decimal(39,2)", "PARTITION_DECIMAL_INVALID", {"type": "decimal(39,2)", "digits": 38}),
        ("a decimal(2,3)", "PARTITION_DECIMAL_INVALID", {"type": "decimal(2,3)"}),
        ("a decimal(0)", "PARTITION_DECIMAL_INVALID", {"type": "decimal(0)"}),
        ("a decimal(10,-2)", "PARTITION_DECLARATION_TYPE", {"type": "decimal(10,-2)"}),
        ("`a int", "PARTITION_DECLARATION_SYNTAX", {"rest": "`a int"}),
        ("a decimal(10", "PARTITION_DECLARATION_SYNTAX", {"rest": "a decimal(10"}),
        ("a int, A int", "PARTITION_DECLARATION_DUPLICATE", {"column": "A"}),
    ],
)
def test_invalid_column_declaration_is_refused_with_position(
    text: str, condition: str, parameters: dict[str, object]
) -> None:
    with conditions.raises(condition, text=text, **parameters):
        parse_partition_columns(text)


@given(st.text(st.sampled_from("ab `,():int decimal<>.\n0123"), max_size=30))
def test_column_parser_accepts_or_refuses_any_text(text: str) -> None:
    try:
        columns = parse_partition_columns(text)
    except Refused:
        return
    spelled = ", ".join(f"`{partition.name.replace('`', '``')}` {partition.type}" for partition in columns)
    assert parse_partition_columns(spelled) == columns


@pytest.mark.parametrize(
    ("type_", "texts", "values"),
    [
        ("int", ["007", "+5", NULL, " 5"], ["007", "+5", None, "5"]),
        ("tinyint", ["-128"], ["-128"]),
        ("string", ["007", "", "%2525"], ["007", None, "%25"]),
        ("date", ["2024-1-5", "2024-01-06"], ["2024-01-05", "2024-01-06"]),
        (
            "timestamp",
            ["2024-01-01", "2024-01-01 01:30"],
            ["2024-01-01T00:00:00.000000Z", "2024-01-01T01:30:00.000000Z"],
        ),
        ("timestamp", ["2024-01-01T00:30:00+01:00"], ["2023-12-31T23:30:00.000000Z"]),
        ("timestamp", ["2024-01-01 00:00:00.123456000Z"], ["2024-01-01T00:00:00.123456Z"]),
        (
            "timestamp_ntz",
            ["2024-01-01 10:00:00.5", "2024-01-01T10:00:00"],
            ["2024-01-01 10:00:00.500000", "2024-01-01 10:00:00"],
        ),
        ("boolean", ["true", "0", "Yes"], ["true", "false", "true"]),
        ("double", ["1e3", "-.5", "NaN"], ["1e3", "-.5", "NaN"]),
        ("float", ["3.4e38"], ["3.4e38"]),
        ("decimal(4,2)", ["12.50", "1e1", "1.500", "-.5"], ["12.50", "10.00", "1.50", "-0.50"]),
        ("decimal(38,0)", ["9" * 38], ["9" * 38]),
        ("binary", ["xyz"], ["xyz"]),
    ],
)
def test_declared_types_cast_partition_values(type_: str, texts: list[str], values: list[str | None]) -> None:
    partitions = check(files(*(f"p={text}/f" for text in texts)), parse_partition_columns(f"p {type_}"))
    assert [value for (value,) in partitions.values] == values


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        *[("int", text) for text in ("x", "2147483648", "1.0", "1e3", "٣", "9" * 5000)],
        *[("tinyint", "128"), ("smallint", "32768"), ("bigint", "9223372036854775808")],
        *[("date", text) for text in ("2024-02-30", "20240101", "0000-01-01", "2024-01-01 00:00:00")],
        *[
            ("timestamp", text)
            for text in ("x", "2024-01-01 25:00:00", "2024-01-01 00:00:00.1234567", "0001-01-01Z+1")
        ],
        *[("timestamp", "0001-01-01 00:00:00+14:00"), ("timestamp_ntz", "2024-01-01 00:00:00Z")],
        *[("boolean", "maybe"), ("double", "1_0"), ("double", "1e999"), ("float", "1e39"), ("double", "nan")],
        *[("decimal(4,2)", text) for text in ("100", "1.555", "x", "1e999", "NaN", "0." + "0" * 70 + "1")],
    ],
)
def test_partition_values_of_another_type_are_refused(type_: str, text: str) -> None:
    with conditions.raises(
        "PARTITION_VALUE_INVALID",
        value=text,
        type=type_,
        column="p",
        file=f"p={text}/f",
        advice=re.compile("^Declare another type"),
    ):
        check(files("p=__HIVE_DEFAULT_PARTITION__/e", f"p={text}/f"), parse_partition_columns(f"p {type_}"))


@pytest.mark.parametrize(
    ("paths", "columns", "condition", "parameters"),
    [
        (
            ["c=1/f"],
            "a int, b int",
            "PARTITION_COLUMNS_MISMATCH",
            {
                "expected_count": 2,
                "expected": "[`a`, `b`]",
                "found_count": 1,
                "found": "[`c`]",
                "file": "c=1/f",
            },
        ),
        (
            ["a=1/f", "root"],
            "a int",
            "PARTITION_COLUMNS_MISMATCH",
            {"expected_count": 1, "expected": "[`a`]", "found_count": 0, "found": "[]", "file": "root"},
        ),
        (
            ["a=1/f"],
            "b int",
            "PARTITION_COLUMN_MISMATCH",
            {"expected": "b", "found": "a", "file": "a=1/f"},
        ),
        (["a=1/x/b=2/f"], "b int", "PARTITION_DIRECTORY_BETWEEN", {"file": "a=1/x/b=2/f", "directory": "x"}),
        (
            ["a=1/A=2/f"],
            "a int, A int",
            "DUPLICATE_PARTITION_DIRECTORY",
            {"file": "a=1/A=2/f", "column": "a"},
        ),
    ],
)
def test_directories_are_checked_against_declared_columns(
    paths: list[str], columns: str, condition: str, parameters: dict[str, object]
) -> None:
    with conditions.raises(condition, **parameters):
        check(files(*paths), [PartitionColumn(*_split(part)) for part in columns.split(", ")])


def _split(text: str) -> tuple[str, Primitive]:
    name, _ = text.split()
    return name, INTEGER


def test_empty_declaration_expects_no_partition_directory() -> None:
    assert check(files("f"), ()) == Partitions((), ((),))
    with conditions.raises("PARTITION_COLUMNS_MISMATCH", expected_count=0, expected="[]", found_count=1):
        check(files("a=1/f"), ())


def test_declared_spelling_of_partition_column_is_used() -> None:
    partitions = check(files("year=1/f", "Year=2/f"), parse_partition_columns("YEAR int"))
    assert partitions.columns == (PartitionColumn("YEAR", INTEGER),)
    assert partitions.values == (("1",), ("2",))


def test_directories_with_equal_values_are_reported() -> None:
    def notes(columns: str, *texts: str) -> Sequence[str]:
        return check(files(*(f"a={text}/f" for text in texts)), parse_partition_columns(columns)).notes

    assert notes("a int", "1", "01") == ("'1' and '01' are the same value of a",)
    assert notes("a double", "1.0", "2", "1e0") == ("'1.0' and '1e0' are the same value of a",)
    assert notes("a boolean", "1", "true") == ("'1' and 'true' are the same value of a",)
    assert notes("a string", "1", "01") == ()
    assert notes("a timestamp", "2024-01-01") == ("a: times without a zone are taken as UTC",)


TEXTS = st.one_of(
    st.text(st.characters(blacklist_categories=["Cs"]), max_size=8),
    st.text(st.sampled_from("ab %=:/41é_."), max_size=6),
    st.integers(-(10**11), 10**11).map(str),
    st.integers(-99, 99).map(str),
    st.dates().map(str),
    st.datetimes().map(str),
    st.datetimes().map(lambda moment: str(moment.replace(microsecond=0))),
    st.sampled_from(["007", "+5", "-0", "true", "1.5", "2024-02-30", "0000-00-00", NULL, ""]),
)
NAMES = st.text(st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=5)


def hive_escaped(text: str) -> str:
    """Escape a name as Hive and Spark do."""
    escaped = set("\"#%'*/:=?\\{[]^\x7f") | {chr(code) for code in range(1, 32)} | {"\0"}
    return "".join(f"%{ord(char):02X}" if char in escaped else char for char in text)


def naive_type(texts: set[str]) -> Primitive:
    """Infer a column's type by trying every type on each value."""

    def whole(text: str, bits: int) -> bool:
        try:
            return str(int(text)) == text and -(2 ** (bits - 1)) <= int(text) < 2 ** (bits - 1)
        except ValueError:
            return False

    def moment(text: str) -> datetime | None:
        try:
            parsed = datetime.strptime(text, "%Y-%m-%d %H:%M:%S" + (".%f" if "." in text else ""))
        except ValueError:
            return None
        return parsed if text.split(".")[0] == parsed.replace(microsecond=0).isoformat(" ") else None

    def day(text: str) -> bool:
        try:
            return date.fromisoformat(text).isoformat() == text
        except ValueError:
            return False

    if not texts:
        return STRING
    if all(whole(text, 32) for text in texts):
        return INTEGER
    if all(whole(text, 64) for text in texts):
        return LONG
    if all(map(day, texts)):
        return DATE
    moments = {moment(text) for text in texts}
    if None not in moments and len(moments) == len(texts):
        return TIMESTAMP
    return STRING


@given(
    st.lists(NAMES, min_size=1, max_size=3, unique_by=str.lower).flatmap(
        lambda names: st.tuples(
            st.just(names),
            st.lists(
                st.one_of(TEXTS.map(lambda text: (text,) * len(names)), st.tuples(*[TEXTS] * len(names)))
            ),
        )
    )
)
def test_inferred_values_equal_written_values(case: tuple[list[str], list[tuple[str, ...]]]) -> None:
    names, rows = case
    paths = [
        "".join(f"{hive_escaped(name)}={hive_escaped(text)}/" for name, text in zip(names, row, strict=True))
        for row in rows
    ]
    partitions = infer(files(*(f"{path}{number}" for path in paths for number in range(2))))
    assert [partition.name for partition in partitions.columns] == (names if rows else [])
    for level, partition in enumerate(partitions.columns):
        texts = [None if row[level] in (NULL, "") else row[level] for row in rows]
        assert partition.type == naive_type({text for text in texts if text is not None})
        written = [values[level] for values in partitions.values]
        assert written[::2] == written[1::2]
        if partition.type == TIMESTAMP:
            times = [text and datetime.fromisoformat(text) for text in texts]
            assert [
                value and datetime.fromisoformat(value.removesuffix("Z")) for value in written[::2]
            ] == times
            assert all(value is None or value.endswith("Z") for value in written)
        else:
            assert written[::2] == texts
