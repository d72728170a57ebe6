"""Which partitions are compared of a table whose files can't be read one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tableferry.fleet.plan import Kind
from tableferry.fleet.warehouse import comparing
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.eligibility import HiveColumn, HiveTable
from tableferry.fleet.warehouse.files import ListedFile
from tableferry.fleet.warehouse.prepared import Made, Member, Prepared
from tableferry.tables import TableName

SOURCE, TARGET = (TableName(("spark_catalog", "s", name)) for name in ("t", "t_iceberg"))
TABLE = HiveTable(
    SOURCE,
    Kind.HIVE,
    "avro",
    columns=(HiveColumn("id", {"name": "int"}), HiveColumn("day", {"name": "string"})),
    partition_columns=("day",),
)


def members(*specs: str, size: int = 1) -> frozenset[Member]:
    """Return a file in each of some partitions."""
    return frozenset((ListedFile(f"file:/w/t/{spec}/0.avro", size, 1), spec) for spec in specs)


ALL = members("day=a", "day=b", "day=c")
CHANGED = members("day=a", "day=c") | members("day=b", size=2)
UPDATED = Made("as it is", "7", ALL, members("day=b"), since="6")
MADE_ANEW = replace(UPDATED, added=ALL, since=None)


@pytest.mark.parametrize(
    ("made", "known", "busy", "where", "quiet"),
    [
        (MADE_ANEW, None, "", "true", ALL),
        (MADE_ANEW, None, "day=b", "NOT coalesce(`day` IN ('b'), false)", members("day=a", "day=c")),
        (UPDATED, ALL, "", None, ALL),
        # It is what was compared.
        (MADE_ANEW, ALL, "", None, ALL),
        (UPDATED, CHANGED, "", "`day` IN ('b')", ALL),
        (UPDATED, CHANGED, "day=b", None, members("day=a", "day=c")),
        # Nothing of it is what was compared.
        (MADE_ANEW, CHANGED, "", "true", ALL),
        # A partition is gone.
        (UPDATED, ALL | members("day=d"), "", "`day` IN ('d')", ALL),
        # What is told by no condition.
        (UPDATED, ALL | members("day=__HIVE_DEFAULT_PARTITION__"), "", "true", ALL),
        (UPDATED, ALL | members("day=it's"), "", "`day` IN ('it\\'s')", ALL),
        (UPDATED, ALL | members("day=it's %22so%22"), "", "true", ALL),
        (UPDATED, ALL | members("day=c%3A%5C"), "", "true", ALL),
    ],
)
def test_partitions_are_compared_that_arent_as_they_were(
    made: Made,
    known: frozenset[Member] | None,
    busy: str,
    where: str | None,
    quiet: frozenset[Member],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[str] = []

    def demand_same(*given: object) -> int:
        compared.append(str(given[4]) if len(given) > 4 else "true")
        return 5

    monkeypatch.setattr(comparing, "demand_same", demand_same)
    nothing: Any = None
    prepared = Prepared(busy=frozenset([busy] if busy else []))
    found = comparing._demand_same_partitions(
        Warehouse(nothing, nothing, prepared=prepared), TABLE, TARGET, made, known
    )
    assert compared == ([] if where is None else [where])
    assert found == (0 if where is None else 5, quiet)
