"""A fake Spark session and a fake workspace for the checks of the doctor."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql import Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.workspace import FakeWorkspace

Answer = Sequence[Row] | Exception | Callable[[str], Sequence[Row]]
"""The rows of a statement, its error, or a function of its text that returns its rows."""


@dataclass(frozen=True)
class FakeFrame:
    """The rows of a statement."""

    rows: Sequence[Row]

    @property
    def columns(self) -> list[str]:
        return list(self.rows[0].asDict()) if self.rows else []

    def collect(self) -> Sequence[Row]:
        return self.rows


@dataclass
class FakeSession:
    """Answers each statement with the first answer whose pattern its text contains; others have no rows.

    Attributes:
        answers: Answers by pattern.
        settings: The session's settings.
        statements: All statements.
    """

    answers: Mapping[str, Answer]
    settings: Mapping[str, str] = field(default_factory=lambda: {"spark.sql.catalog.ice": "iceberg"})
    statements: list[str] = field(default_factory=list)
    version: str = "4.1.4"

    def sql(self, text: str) -> FakeFrame:
        self.statements.append(text)
        answer = next((found for pattern, found in self.answers.items() if re.search(pattern, text)), ())
        if isinstance(answer, Exception):
            raise answer
        return FakeFrame(answer(text) if callable(answer) else answer)

    @property
    def conf(self) -> Mapping[str, str]:
        return self.settings

    @property
    def catalog(self) -> Any:
        return SimpleNamespace(currentCatalog=lambda: "main")

    @property
    def as_spark(self) -> SparkSession:
        return cast("SparkSession", self)


def ids(*numbers: int) -> list[Row]:
    return [Row(id=number) for number in numbers]


def history(*versions: int, operation: str = "WRITE") -> list[Row]:
    first = Row(version=0, timestamp=0, operation="CREATE TABLE", operationParameters={})
    written = [
        Row(version=version, timestamp=version, operation=operation, operationParameters={})
        for version in versions
    ]
    return [*written[::-1], first]


def _named(text: str) -> list[Row]:
    """Return the table that a query of information_schema searches."""
    return [Row(table_name=re.findall(r"table_name = '(\w+)'", text)[0])]


HEALTHY: Mapping[str, Answer] = {
    r"^SELECT 1$": [Row(one=1)],
    r"^DESCRIBE HISTORY": history(1, 2),
    r"^DESCRIBE DETAIL": [Row(id="0b1c", location="s3://bucket/table", format="delta")],
    r"^SELECT id FROM .* VERSION AS OF 1$": ids(1, 2),
    r"^SELECT id FROM .*clone`$": ids(1, 2),
    r"^SELECT id FROM .*(old|hive|iceberg)`$": ids(1),
    r"^SHOW TBLPROPERTIES": [Row(key="pipelines.reset.allowed", value="false")],
    r"^DESCRIBE EXTENDED": [Row(col_name="Provider", data_type="hive", comment="")],
    r"information_schema\.tables": _named,
    r"information_schema\.table_tags": [Row(column="", tag="tableferry_doctor", value="yes")],
}
"""The answers of a workspace in which every check passes."""


def streamed_ids(env: object, table: object, name: str, options: object = None) -> list[int]:
    """Replace `stream_ids`: a stream over the clone reads its rows, one with a start the later rows."""
    return [3] if options else [1, 2]


def registering(workspace: FakeWorkspace) -> Mapping[str, Answer]:
    """Return answers that add each new table to the fake workspace."""

    def create(text: str) -> list[Row]:
        workspace.put_table(re.findall(r"CREATE TABLE (\S+)", text)[0].replace("`", ""))
        return []

    return {r"^CREATE TABLE `main`": create}
