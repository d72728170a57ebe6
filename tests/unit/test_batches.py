"""What a Spark Connect server is given to fold CDC batches, and what comes back when one fails."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from pyspark import cloudpickle
from tests.conditions import check

from tableferry.errors import TableError
from tableferry.pipelines import batches
from tableferry.pipelines.flows import CdcSettings
from tableferry.pipelines.guard import Held
from tableferry.spark.tables import TableName

SERVER = """
import pickle, sys
sys.modules["tableferry"] = None  # it can't be imported here
fold = pickle.load(open(sys.argv[1], "rb"))
class Batch:
    columns = ["id", "__sequence"]
try:
    fold(Batch(), 0)
except Exception as error:
    print(type(error).__module__, type(error).__name__, error, error.__suppress_context__)
"""


class Remote:
    """Stands in for a session of Spark Connect, which says where Spark is by its module."""

    __module__ = "pyspark.sql.connect.session"


def test_a_server_that_has_no_tableferry_gets_all_that_it_needs(tmp_path: Path) -> None:
    settings = CdcSettings(keys=("id",), sequence_by="at", scd_type=2)
    target = TableName.parse("silver.t")
    guard = Held([target], "a run", 120).check
    fold = batches.folding(Remote(), target, settings, print, guard, [])  # type: ignore[arg-type]
    file = tmp_path / "fold"
    dumps: Callable[[object], bytes] = cloudpickle.dumps  # it has no annotations
    file.write_bytes(dumps(fold))
    server = subprocess.run([sys.executable, "-c", SERVER, file], capture_output=True, text=True, check=False)
    assert server.stderr == ""
    assert server.stdout.startswith("builtins RuntimeError ")
    assert server.stdout.endswith(" True\n")
    check(batches.raised_there(Exception(server.stdout)), "RESERVED_COLUMN_IN_FEED", column="__sequence")


def test_what_a_batch_raises_there_for_the_user_to_fix_is_raised_here() -> None:
    printed = "[STREAM_FAILED] Query [id = 1] terminated with exception: Traceback (most recent call last):\n"
    printed += '  File "/there/worker.py", line 84, in main\n'
    carried = "Tableferry's error: " + json.dumps(
        TableError(
            "COLUMN_TYPE_DOES_NOT_FIT", table="t", column="v", table_type="int", new_type="bigint"
        ).to_dict()
    )
    raised = batches.raised_there(Exception(f"{printed}RuntimeError: {carried}\n SQLSTATE: 39000"))
    assert isinstance(raised, TableError)
    check(raised, "COLUMN_TYPE_DOES_NOT_FIT", table="t", column="v", table_type="int", new_type="bigint")
    without = json.dumps(TableError("t: cast it").to_dict())
    assert (
        str(batches.raised_there(Exception(f"{printed}RuntimeError: Tableferry's error: {without}")))
        == "t: cast it"
    )
    assert batches.raised_there(Exception(f"{printed}KeyError: 'k'\n")) is None
