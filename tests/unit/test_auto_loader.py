"""What of Auto Loader's options Spark's own file stream can do."""

from __future__ import annotations

import pytest
from tests.conditions import check

from tableferry.pipelines import auto_loader
from tableferry.pipelines.flows import OtherSource


def test_options_are_made_into_those_of_the_file_stream() -> None:
    stream = auto_loader.file_stream(
        {
            "cloudFiles.format": "json",
            "CLOUDFILES.MAXFILESPERTRIGGER": "5",
            "cloudFiles.schemaLocation": "/s",
            "cloudFiles.useNotifications": "true",
            "rescuedDataColumn": "_rescued",
            "multiLine": "true",
        }
    )
    assert stream.format == "json"
    assert stream.options == {
        "maxFileAge": auto_loader.ANY_AGE,
        "maxFilesPerTrigger": "5",
        "multiLine": "true",
    }
    assert stream.left_aside == (
        "cloudFiles.schemaLocation",
        "cloudFiles.useNotifications",
        "rescuedDataColumn",
    )


@pytest.mark.parametrize(("size", "expected"), [("10g", str(10 << 30)), ("3 MB", str(3 << 20)), ("7", "7")])
def test_a_size_is_written_in_bytes(size: str, expected: str) -> None:
    assert (
        auto_loader.file_stream({"cloudFiles.maxBytesPerTrigger": size}).options["maxBytesPerTrigger"]
        == expected
    )


@pytest.mark.parametrize(
    ("options", "age"),
    [({}, auto_loader.ANY_AGE), ({"cloudFiles.maxFileAge": "3d"}, "3d"), ({"MAXFILEAGE": "4d"}, "4d")],
)
def test_no_file_is_too_old_unless_the_spec_says_so(options: dict[str, str], age: str) -> None:
    ages = [v for k, v in auto_loader.file_stream(options).options.items() if k.lower() == "maxfileage"]
    assert ages == [age]


def test_of_two_limits_the_number_of_files_counts() -> None:
    stream = auto_loader.file_stream(
        {"cloudFiles.maxBytesPerTrigger": "1g", "cloudFiles.maxFilesPerTrigger": "2"}
    )
    assert "maxBytesPerTrigger" not in stream.options
    assert stream.left_aside == ("cloudFiles.maxBytesPerTrigger",)


@pytest.mark.parametrize(
    ("option", "value", "condition"),
    [
        ("cloudFiles.includeExistingFiles", "false", "EXISTING_FILES_OPTION"),
        ("cloudFiles.allowOverwrites", "true", "OVERWRITES_OPTION"),
        ("cloudFiles.cleanSource", "DELETE", "CLEAN_SOURCE_OPTION"),
        ("cloudFiles.partitionColumns", "day", "PARTITION_COLUMNS_OPTION"),
        ("cloudFiles.somethingNew", "1", "AUTO_LOADER_OPTION_UNKNOWN"),
    ],
)
def test_what_changes_which_rows_come_is_refused(option: str, value: str, condition: str) -> None:
    options = {"cloudFiles.format": "text", option: value}
    (refusal,) = auto_loader.not_to_be_had(OtherSource("cloudFiles", options, "/in"), handed_over=False)
    check(refusal, condition, option=option)


def test_what_changes_nothing_passes() -> None:
    options = {
        "cloudFiles.format": "parquet",
        "cloudFiles.includeExistingFiles": "true",
        "cloudFiles.allowOverwrites": "false",
        "cloudFiles.cleanSource": "OFF",
        "cloudFiles.backfillInterval": "1 day",
    }
    assert not list(auto_loader.not_to_be_had(OtherSource("cloudFiles", options, "/in"), handed_over=False))
    old = {**options, "cloudFiles.includeExistingFiles": "false"}
    assert not list(auto_loader.not_to_be_had(OtherSource("cloudFiles", old, "/in"), handed_over=True))
    assert auto_loader.gives_start(old)
    assert not auto_loader.gives_start(options)


def test_a_format_without_columns_needs_a_schema() -> None:
    csv = {"cloudFiles.format": "csv"}
    (refusal,) = auto_loader.not_to_be_had(OtherSource("cloudFiles", csv, "/in"), handed_over=False)
    check(refusal, "AUTO_LOADER_SCHEMA_MISSING", format="csv")
    with_schema = OtherSource("cloudFiles", csv, "/in", schema_file="s.ddl")
    assert not list(auto_loader.not_to_be_had(with_schema, handed_over=False))
    (refusal,) = auto_loader.not_to_be_had(OtherSource("cloudFiles", {}, "/in"), handed_over=False)
    check(refusal, "AUTO_LOADER_FORMAT_MISSING")
