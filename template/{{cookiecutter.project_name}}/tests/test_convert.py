"""A folder of Parquet files becomes a Delta table where it is, and its files stay as they are."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from tableferry import convert

ORDERS = pa.table(
    {
        "order_id": [1, 2, 3, 4],
        "product": ["tea", None, "coffee", "tea"],
        "year": [2025, 2025, 2026, 2026],
    }
)


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """A folder as a job of today leaves it: a folder for each year."""
    folder = tmp_path / "orders"
    pq.write_to_dataset(ORDERS, str(folder), partition_cols=["year"])
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """Read all files of a folder, by their names."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_a_plan_writes_nothing(orders: Path) -> None:
    before = contents(orders)
    assert convert.run([str(orders)], dry_run=True).ok
    assert contents(orders) == before


def test_every_row_is_read_from_the_files_that_were_there(orders: Path) -> None:
    before = contents(orders)
    for _ in range(2):  # running again changes nothing
        assert convert.run([str(orders)]).ok
        after = contents(orders)
        assert after.keys() - before.keys() == {"_delta_log/00000000000000000000.json"}
        assert {name: after[name] for name in before} == before
    table = DeltaTable(str(orders))
    assert table.metadata().partition_columns == ["year"]
    rows = table.to_pyarrow_table().select(ORDERS.column_names).sort_by("order_id")
    assert rows.to_pylist() == ORDERS.to_pylist()


def test_what_cannot_be_converted_stays_as_it_is(orders: Path) -> None:
    (orders / "year=2026" / "notes.parquet").write_text("no Parquet file")
    before = contents(orders)
    assert not convert.run([str(orders)]).ok
    assert contents(orders) == before


def test_a_conversion_can_be_taken_back(orders: Path) -> None:
    before = contents(orders)
    assert convert.run([str(orders)]).ok
    convert.undo(str(orders))
    assert contents(orders) == before
