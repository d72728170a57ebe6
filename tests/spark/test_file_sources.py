"""Streams that read files hand over where the log of the files that they have read says."""

from __future__ import annotations

import json
import os
import shutil
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console
from tests import soak
from tests.conditions import check, raises
from tests.spark.projects import Project
from tests.spark.runtime import Ran

from tableferry import pipelines
from tableferry.errors import Refused
from tableferry.pipelines.show import print_verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = "v bigint, half double"
A_DAY = 24 * 60 * 60
FIRST_FILE = 1_700_000_000


class Job:
    """An old job that streams JSON files, and the project whose flow goes on from it.

    Attributes:
        put: All numbers that were put into files: what the target must hold at the end.
    """

    def __init__(self, project: Project, spark: SparkSession, folder: Path) -> None:
        self.project, self._spark = project, spark
        # Names that Spark encodes in its log.
        self.files, self.checkpoint = folder / "in %20é", folder / "old"
        self.files.mkdir()
        self.put: list[int] = []

    def arrive(self, count: int) -> None:
        """Let files come, each with one row, and each a day newer than the one before."""
        for number in range(len(self.put), len(self.put) + count):
            file = self.files / f"{number:03} #é.json"
            file.write_text(json.dumps({"v": number, "half": number / 2}), "utf-8")
            os.utime(file, (FIRST_FILE + number * A_DAY,) * 2)
            self.put.append(number)

    def run(self, target: str = "out_legacy", where: str = "true", **options: str) -> None:
        """Let the old stream take all files that are there, one in each batch."""
        reader = self._spark.readStream.format("json").schema(COLUMNS).options(maxFilesPerTrigger="1")
        frame = reader.options(**options).load(str(self.files)).where(where)
        writer = frame.writeStream.trigger(availableNow=True).format("delta")
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        writer.toTable(f"{self.project.schema}.{target}").awaitTermination()

    def migrate(self, path: Path | None = None, options: Any = None, **details: Any) -> None:
        """Write the spec whose flow reads the files that the old stream hasn't read."""
        self.project.write("dataflows/d/schemas/out.ddl", COLUMNS)
        legacy = {"checkpointLocation": str(self.checkpoint), **details.pop("legacy", {})}
        reader = {"cloudFiles.format": "json", "cloudFiles.maxFilesPerTrigger": "3", **(options or {})}
        self.project.standard(
            "out",
            {"path": str(path or self.files), "readerOptions": reader, "schemaPath": "out.ddl"},
            sourceType="cloudFiles",
            tableMigrationDetails=self.project.migration("out", legacy, **details),
        )

    def values(self, table: str = "out") -> list[int]:
        return [row[0] for row in sorted(self.project.rows(table, "v"))]

    def log(self) -> Path:
        return self.checkpoint / "sources" / "0"


@pytest.fixture
def job(tmp_path: Path, schema: str, spark: SparkSession) -> Job:
    project = Project(tmp_path / "shop", schema, spark)
    project.create("out_legacy", COLUMNS)
    return Job(project, spark, tmp_path)


def verified(project: Project) -> str:
    """Return what `verify` prints, in one line."""
    out = StringIO()
    print_verify(Console(file=out, width=300), project.verify())
    return " ".join(out.getvalue().replace(f"{project.schema}.", "").split())


def killed_within_a_batch(job: Job) -> None:
    """Leave the checkpoint as a stream leaves it that dies within a batch: begun, and not finished.

    The rows of the newest batch are taken back from the table, for the stream hadn't come so far.
    """
    newest = max(int(name) for name in os.listdir(job.checkpoint / "offsets") if name.isdigit())
    for name in (str(newest), f".{newest}.crc"):
        (job.checkpoint / "commits" / name).unlink()
    log = job.project.folder("out_legacy") / "_delta_log"
    last = max(log.glob("*.json"))
    last.unlink()
    (log / f".{last.name}.crc").unlink(missing_ok=True)
    last.with_suffix(".crc").unlink(missing_ok=True)
    (log / f".{last.stem}.crc.crc").unlink(missing_ok=True)
    job.project.spark.sql(f"REFRESH TABLE {job.project.schema}.out_legacy")


@soak.slow
def test_a_flow_goes_on_behind_the_files_that_the_old_stream_has_read(job: Job) -> None:
    """Its log is compacted, it dies within a batch, and it goes on beside the new flow."""
    project = job.project
    job.arrive(13)
    job.run()
    assert (job.log() / "9.compact").exists()
    killed_within_a_batch(job)
    assert job.values("out_legacy") == job.put[:12]
    job.arrive(3)
    job.migrate(options={"cloudFiles.schemaLocation": "/x", "rescuedDataColumn": "_rescued"})
    with project.nothing_written():
        plan = project.plan()
    (target,) = plan.targets
    assert str(plan.steps[0]).endswith(f"baselines cloudFiles:{job.files} behind 12 files")
    assert "it leaves aside cloudFiles.schemaLocation, rescuedDataColumn" in " ".join(target.notes)
    assert project.run().ok
    assert job.values() == job.put
    # The state is a table still, for whoever reads it.
    states = project.spark.read.csv(str(project.state / "initial_versions"), header=True)
    assert [row["viewName"] for row in states.collect()] == ["v_out"]
    assert "16 rows of out_legacy@" in (said := verified(project))
    assert "and 4 files behind it" in said
    # It goes on beside the new flow, and is ahead of it; its log is compacted again.
    job.arrive(8)
    job.run()
    assert job.values("out_legacy") == job.put
    assert "proved: it holds the 16 rows" in verified(project)
    # Files that come late, older than all that were read, and more than a week so.
    job.files.joinpath("late.json").write_text('{"v": -1}')
    os.utime(job.files / "late.json", (FIRST_FILE - 30 * A_DAY,) * 2)
    assert project.run().ok
    assert job.values() == [-1, *job.put]
    job.arrive(6)
    assert project.run().ok
    # A full refresh needs the list again, and not the old stream.
    shutil.move(job.checkpoint, job.checkpoint.with_name("away"))
    assert project.run(full_refresh=[f"{project.schema}.out"]).ok
    assert job.values() == [-1, *job.put]
    shutil.move(job.checkpoint.with_name("away"), job.checkpoint)
    (job.files / "late.json").unlink()
    assert "A file that the flow has read is missing" in verified(project)
    assert project.finish(verify=False).finished
    assert not list(project.state.glob("initial_versions/*/*"))
    job.arrive(2)
    assert project.run().ok
    assert job.values() == [-1, *job.put]


@soak.only  # test_take_over.py has Delta's streams, test_kafka.py Kafka's, and the test above the files.
def test_a_table_is_taken_over_and_given_back(job: Job) -> None:
    """The old stream goes on behind the files of the flow, and its log goes on to be compacted."""
    project = job.project
    project.create("out", COLUMNS)
    job.arrive(11)
    job.run("out")
    job.arrive(5)
    job.migrate(mode="takeOver", legacy={"table": "out"})
    assert project.run().ok
    assert job.values() == job.put

    def dies(what: str) -> None:
        if what.startswith("removing"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pipelines.undo(project.root, project.spark, before=dies)
    with raises("UNDO_OF_TARGET_UNFINISHED"):
        project.run()
    assert pipelines.undo(project.root, project.spark)
    job.arrive(4)
    job.run("out")
    assert job.values() == job.put
    job.arrive(13)
    job.run("out")
    assert job.values() == job.put
    job.arrive(2)
    assert project.run().ok
    assert job.values() == job.put


@soak.slow
def test_what_the_log_doesn_t_tell_is_refused_before_anything_is_written(job: Job, tmp_path: Path) -> None:
    project = job.project
    job.arrive(12)
    job.run()
    other = tmp_path / "other"
    other.mkdir()
    job.migrate(path=other)
    with raises("FILES_OUTSIDE_FOLDER", folder=other):
        project.run()
    job.migrate(options={"cloudFiles.allowOverwrites": "true"})
    with raises("OVERWRITES_OPTION", option="cloudFiles.allowOverwrites"):
        project.run()
    job.migrate()
    spec = job.project.root / "dataflows/d/dataflowspec/out_main.json"
    alone = json.loads(spec.read_text())
    project.create("more", COLUMNS)
    union = f"SELECT * FROM STREAM(v_files) UNION ALL SELECT * FROM STREAM({project.schema}.more)"
    files = {"mode": "stream", "sourceType": "cloudFiles", "sourceDetails": alone["sourceDetails"]}
    both = {"mode": "stream", "sourceType": "sql", "sourceDetails": {"sqlStatement": union}}
    flow = {
        "flowType": "append_view",
        "flowDetails": {"targetTable": "out", "sourceView": "v_both"},
        "views": {"v_files": files, "v_both": both},
    }
    project.flow("out", {"f_both": flow}, tableMigrationDetails=alone["tableMigrationDetails"])
    (shared,) = project.plan().refusals
    check(shared, "SOURCES_SHARE_CHECKPOINT", flow="f_both", source=f"cloudFiles:{job.files}")
    job.migrate()
    (refusal,) = project.plan(pipeline=Ran()).refusals
    check(refusal, "FILE_LIST_NOT_IMPORTABLE", owner="A pipeline")
    assert not project.plan().refusals
    # Spark itself leaves older files, once a newer one holds what they say.
    for name in [*map(str, range(9))]:
        (job.log() / name).unlink()
    assert not project.plan().refusals
    whole = (job.log() / "9.compact").read_text("utf-8")
    for left, why in (
        (whole[:300], "isn't a complete log"),
        ("\n".join(whole.split("\n")[:-1]), "it names no file that batch 9 has read"),
        (None, "it has no batch 0"),
    ):
        if left is None:
            (job.log() / "9.compact").unlink()
        else:
            (job.log() / ".9.compact.crc").unlink(missing_ok=True)
            (job.log() / "9.compact").write_text(left, "utf-8")
        with pytest.raises(Refused, match=why):
            project.run()
    assert not project.spark.catalog.tableExists(f"{project.schema}.out")


@soak.slow
def test_auto_loader_runs_as_spark_s_file_stream_without_a_migration(job: Job, tmp_path: Path) -> None:
    """The files say what their columns are, and names that Spark takes for patterns come once."""
    project = job.project
    folder = tmp_path / "parquet"
    source = {
        "path": str(folder),
        "readerOptions": {"cloudFiles.format": "parquet", "recursiveFileLookup": "true"},
        "selectExp": ["v"],
    }

    def arrive(*names: str) -> None:
        for name in names:
            rows = project.spark.createDataFrame([(len(job.put),)], "v int")
            rows.coalesce(1).write.mode("overwrite").parquet(str(tmp_path / "one"))
            (part,) = (tmp_path / "one").glob("*.parquet")
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            part.rename(folder / name)
            job.put.append(len(job.put))

    arrive("a[1].parquet", "b[1].parquet", "deep/c?.parquet")
    project.standard("out", source, sourceType="cloudFiles")
    assert "runs as Spark's own file stream" in " ".join(project.plan().targets[0].notes)
    assert project.run().ok
    assert job.values() == job.put
    arrive("a[2].parquet", "deep/d.parquet")
    assert project.run().ok
    assert project.run().ok
    assert job.values() == job.put
