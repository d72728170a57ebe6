"""The settings that a view is read with, by what the catalog says of it."""

from __future__ import annotations

from typing import Any

import pytest

from tableferry.fleet.warehouse.new_views import _view
from tableferry.tables import TableName

ANSI = "spark.sql.ansi.enabled"


@pytest.mark.parametrize(
    ("description", "expected"),
    [
        ({"created_by": "Spark 3.5.1"}, {ANSI: "false"}),
        ({"created_by": "Spark 2.2 or prior"}, {ANSI: "false"}),
        ({"created_by": "Spark 4.1.4"}, {}),
        ({}, {}),
        (
            {"created_by": "Spark 3.5.1", "view_creation_spark_configuration": {ANSI: "true", "k": "v"}},
            {ANSI: "true", "k": "v"},
        ),
    ],
)
def test_a_view_of_spark_3_is_not_strict_unless_it_says_so(
    description: dict[str, Any], expected: dict[str, str]
) -> None:
    catalog = {"view_catalog_and_namespace": "spark_catalog.s"}
    assert _view(TableName(("spark_catalog", "s", "v")), {**catalog, **description}).settings == expected
