"""Values in statements of Spark SQL."""

from __future__ import annotations

import base64
import re
from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableferry.fleet.queue.sparksql import bound

WRITTEN = re.compile(r"'([^'\\$]*)'|CAST\(unbase64\('([A-Za-z0-9+/=]*)'\) AS STRING\)")


@given(text=st.text())
def test_any_text_is_read_back_from_its_literal(text: str) -> None:
    match = WRITTEN.fullmatch(bound(":text", {"text": text}))
    assert match is not None
    plain, coded = match.groups()
    assert (plain if coded is None else base64.b64decode(coded).decode()) == text


@pytest.mark.parametrize("text", ["it's", "a\\b", "${spark.master}", "line\nline", "größe"])
def test_text_with_special_characters_is_encoded(text: str) -> None:
    assert bound(":text", {"text": text}).startswith("CAST(unbase64(")


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (None, "NULL"),
        (True, "true"),
        (-7, "-7"),
        (2**40, str(2**40)),
        (date(2026, 3, 1), "DATE '2026-03-01'"),
        (datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), "timestamp_micros(-1)"),
        (datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), "timestamp_micros(0)"),
        (["a"], "CAST(unbase64('WyJhIl0=') AS STRING)"),
    ],
)
def test_value_is_written_as_a_spark_literal(value: object, written: str) -> None:
    assert bound("SELECT :value", {"value": value}) == f"SELECT {written}"


def test_only_parameters_are_replaced() -> None:
    text = "SELECT `a:n`, ':n', x::n, struct(:n, :n_1) FROM `t`"
    given = {"n": 1, "n_1": ":n"}
    assert bound(text, given) == "SELECT `a:n`, ':n', x::n, struct(1, ':n') FROM `t`"


def test_value_without_a_literal_raises_a_type_error() -> None:
    with pytest.raises(TypeError, match="float can't be written"):
        bound(":value", {"value": 1.5})
