"""The list of the files that an old stream has read, in the state of a migration."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.conditions import raises

from tableferry.pipelines.seen_files import SeenFile
from tableferry.pipelines.state import PART, Baseline, MigrationStart, PinnedCopy, StateStore
from tableferry.spark.tables import TableName

TARGET = TableName(("s", "out"))
SOURCE = TableName.at("cloudFiles:/in")
SEEN = (SeenFile("file:///in/a.json", 1, 0), SeenFile("file:///in/b.json", 2, 7))
BASELINE = Baseline(SOURCE, "files:query:0", 7, ("v",), '{"logOffset":7}')
START = MigrationStart(
    "p", TARGET, PinnedCopy(TableName(("s", "old")), "id", 3), {SOURCE.key: BASELINE}, datetime.now(UTC)
)


@pytest.fixture
def store(tmp_path: Path) -> StateStore:
    store = StateStore(tmp_path, "p")
    store.keep_seen(TARGET, BASELINE.seen, SEEN)
    assert store.begin(START)
    return store


def test_it_is_written_once_and_goes_with_the_migration(store: StateStore) -> None:
    stored = store.read(TARGET).migration_start
    assert stored is not None
    assert stored.baselines == START.baselines
    store.keep_seen(TARGET, BASELINE.seen, ())
    assert store.seen(TARGET, stored.baselines[SOURCE.key].seen) == SEEN
    # A start that came to another batch, and died before it was recorded, has left another list.
    other = replace(BASELINE, version=8)
    assert other.seen != BASELINE.seen
    folder = store.migration_start_file(TARGET).parent
    assert sorted(path.name[0] for path in folder.iterdir() if path.name != PART) == ["_"]
    store.finish(TARGET)
    assert not folder.exists()


def test_it_is_adopted_with_the_rest(store: StateStore, tmp_path: Path) -> None:
    mine = StateStore(tmp_path, "other")
    mine.adopt(TARGET, "p")
    assert mine.read(TARGET).migration_start == replace(START, pipeline_id="other")
    assert mine.seen(TARGET, BASELINE.seen) == SEEN
    assert not store.migration_start_file(TARGET).parent.exists()


@pytest.mark.parametrize("left", [None, 'v1\n{"path":'])
def test_without_it_nobody_goes_on(store: StateStore, left: str | None) -> None:
    path = store.migration_start_file(TARGET).with_name(BASELINE.seen)
    if left is None:
        path.unlink()
        with raises("SEEN_FILES_MISSING", target=TARGET):
            store.read(TARGET)
    else:
        path.write_text(left)
        with raises("STATE_FILE_INVALID", file=path):
            store.seen(TARGET, BASELINE.seen)
