"""Conversions and undos in S3, Azure and Google Cloud Storage, without Java."""

from __future__ import annotations

import io
import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any, get_args

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.transforms import IdentityTransform
from tests import conditions, object_stores, soak
from tests.object_stores import Bucket, Kind, Weather
from tests.storage_behaviour import STATE

from tableferry import convert, storage
from tableferry.errors import Refused
from tableferry.formats.delta import initial_commit
from tableferry.storage import object_store

FIRST = "_delta_log/00000000000000000000.json"
SECOND = "_delta_log/00000000000000000001.json"

_numbers = count(1)


@pytest.fixture(scope="module")
def moto() -> Iterator[tuple[str, Weather]]:
    with object_stores.moto() as running:
        yield running


@pytest.fixture(scope="module")
def azurite() -> Iterator[str]:
    try:
        with object_stores.azurite() as address:
            yield address
    except object_stores.NotInstalled as missing:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(missing))


@pytest.fixture
def weather(moto: tuple[str, Weather]) -> Iterator[Weather]:
    """Return the proxy to S3, which works until a test disturbs it."""
    _, weather = moto
    yield weather
    weather.__init__()  # type: ignore[misc]


@pytest.fixture
def logged_out(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in object_stores.logged_out():
        monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/dev/null")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    forget()
    yield
    forget()


def forget() -> None:
    object_store._client.cache_clear()
    object_store._require_exclusive.cache_clear()


@pytest.fixture(params=get_args(Kind))
def bucket(request: pytest.FixtureRequest, logged_out: None, tmp_path: Path) -> Bucket:
    """Return a bucket of each kind; the environment has its login."""
    kind, name = request.param, f"lake{next(_numbers)}"
    if kind == "azure":
        made = object_stores.azure(request.getfixturevalue("azurite"), name)
    else:
        address, _ = request.getfixturevalue("moto")
        made = (
            object_stores.s3(address, name) if kind == "s3" else object_stores.google(address, name, tmp_path)
        )
    log_in(request.getfixturevalue("monkeypatch"), made)
    return made


@pytest.fixture
def s3(moto: tuple[str, Weather], logged_out: None, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    made = object_stores.s3(moto[0], f"lake{next(_numbers)}")
    log_in(monkeypatch, made)
    return made


def log_in(monkeypatch: pytest.MonkeyPatch, bucket: Bucket) -> None:
    for name, value in bucket.environment.items():
        monkeypatch.setenv(name, value)


def no_session() -> Any:
    raise AssertionError("a store needs no Spark")


def parquet(columns: dict[str, list[Any]]) -> bytes:
    written = io.BytesIO()
    pq.write_table(pa.table(columns), written)
    return written.getvalue()


def events(bucket: Bucket, root: str = "events") -> str:
    """Write a table of three partitions whose names need escapes, and return its URI."""
    for number, value in enumerate(("2026-01-01", "10%3A00 a", "ü&+#?")):
        for part in ("part 0.parquet", "part-1.snappy.parquet"):
            bucket.put(f"{root}/k={value}/{part}", parquet({"id": [number, number + 10], "v": ["a", None]}))
    bucket.put(f"{root}/_SUCCESS", b"")
    return f"{bucket.uri}/{root}"


def converted(source: str, **options: Any) -> convert.TableReport:
    [report] = convert.run([source], resolve=no_session, **options).tables
    return report


def rows(bucket: Bucket, source: str) -> list[dict[str, Any]]:
    table = deltalake.DeltaTable(source, storage_options=bucket.options)
    return sorted(pa.table(table.to_pyarrow_table()).to_pylist(), key=repr)


def test_store_conversion_and_undo_write_only_the_log(bucket: Bucket) -> None:
    source = events(bucket)
    before = bucket.content()

    assert converted(source, dry_run=True).outcome == "planned"
    assert bucket.content() == before
    report = converted(source)

    assert (report.outcome, report.error) == ("converted", None)
    assert {key for key in bucket.names() if key not in before} == {f"events/{FIRST}"}
    found = rows(bucket, source)
    assert len(found) == 12
    assert {row["k"] for row in found} == {"2026-01-01", "10:00 a", "ü&+#?"}
    assert converted(source).outcome == "already"
    assert convert.undo(source, resolve=no_session) == ()
    assert bucket.content() == before


def test_store_conversion_equals_local_conversion(bucket: Bucket, tmp_path: Path) -> None:
    def without_times(text: str) -> list[dict[str, Any]]:
        actions = [json.loads(line) for line in text.splitlines()]
        for action in actions:
            for part in action.values():
                for name in ("timestamp", "createdTime", "modificationTime", "id"):
                    part.pop(name, None)
        return actions

    source = events(bucket)
    for key, body in bucket.content().items():
        (tmp_path / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / key).write_bytes(body)
    for statistics in (convert.Statistics.FOOTERS, convert.Statistics.SCAN):
        assert converted(source, statistics=statistics).outcome == "converted"
        assert converted(str(tmp_path / "events"), statistics=statistics).outcome == "converted"

        stored = without_times(bucket.get(f"events/{FIRST}").decode())
        assert stored == without_times((tmp_path / "events" / FIRST).read_text())
        convert.undo(source)
        convert.undo(str(tmp_path / "events"))


def test_folder_marker_objects_are_no_files(s3: Bucket) -> None:
    source = events(s3)
    for key in ("events/", "events/empty/", "events/k=2026-01-01/", "events/old_$folder$"):
        s3.put(key, b"")

    assert converted(source).outcome == "converted"
    assert len(rows(s3, source)) == 12

    s3.put("events2/nothing.parquet", b"")
    refused = converted(f"{s3.uri}/events2")
    conditions.check(
        refused.error, "UNREADABLE_FILES", files=re.compile(r"^nothing.parquet is empty \(0 bytes\)")
    )


@pytest.mark.parametrize(
    ("key", "condition", "parameters"),
    [
        (
            "events/k=2026-01-01/notes.txt",
            "UNREADABLE_FILES",
            {"files": re.compile("notes.txt is not a Parquet file")},
        ),
        (
            "events/k=2026-01-01/_delta_log/00000000000000000000.json",
            "FOLDER_CONTAINS_TABLE",
            {"name": "_delta_log"},
        ),
        (
            "events/base_0000001/a.parquet",
            "TRANSACTIONAL_HIVE_TABLE",
            {"folder": re.compile("/events/base_0000001$")},
        ),
        (
            "events/k=2026-01-01/a:b.parquet",
            "FILE_NAME_WITH_COLON",
            {"file": "k=2026-01-01/a:b.parquet"},
        ),
        (
            "events/metadata/v1.metadata.json",
            "ICEBERG_FILE_NOT_UNDERSTOOD",
            {"file": re.compile("/v1.metadata.json$")},
        ),
        ("events/deep/down/a.parquet", "PARTITION_COLUMNS_DIFFER", {"columns": "[]"}),
        (
            "events/k=2026-01-01//a.parquet",
            "STORE_REQUEST_FAILED",
            {"advice": re.compile("(?i)give that object another name")},
        ),
    ],
)
def test_refused_store_folder_is_named_and_unchanged(
    s3: Bucket, key: str, condition: str, parameters: dict[str, object]
) -> None:
    source = events(s3)
    s3.put(key, parquet({"id": [1]}) if key.endswith(".parquet") else b"nothing of ours")
    before = s3.content()

    report = converted(source)

    assert report.outcome in ("refused", "failed")
    conditions.check(report.error, condition, **parameters)
    assert s3.content() == before


@pytest.mark.parametrize("lost", [1, 2])
def test_lost_probe_response_does_not_disqualify_store(
    s3: Bucket, weather: Weather, lost: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store, "_LATER", object_store._AT_FIRST)
    source, probes = events(s3), count(1)
    weather.after = lambda request: "_tableferry_" in request and "PUT" in request and next(probes) == lost

    assert converted(source).outcome == "converted"
    assert not [name for name in s3.names() if "_tableferry_" in name]


def test_unanswered_probe_is_not_reported_as_unsafe_store(
    s3: Bucket, weather: Weather, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store, "_LATER", object_store._AT_FIRST)
    source = events(s3)
    weather.after = lambda request: "_tableferry_" in request

    report = converted(source)

    assert report.outcome == "failed"
    conditions.check(report.error, "STORE_REQUEST_FAILED", failure="can't be written")


def test_probes_of_dead_process_are_removed(s3: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    source = events(s3)
    left = [f"events/_delta_log/_tableferry_{number:032x}" for number in range(3)]
    for key in [*left, "events/_delta_log/_tableferry_mine"]:
        s3.put(key, b"")

    # They may belong to a running process.
    assert converted(source).outcome == "converted"
    assert set(left) <= set(s3.names())

    convert.undo(source)
    for key in left:
        s3.put(key, b"")
    forget()
    monkeypatch.setattr(object_store, "_LEFT", timedelta(seconds=-1))
    assert converted(source).outcome == "converted"
    assert not set(left) & set(s3.names())


@pytest.mark.parametrize(
    ("kind", "metadata"),
    [
        ("Delta", FIRST),
        ("Iceberg", "metadata/00000-6c1.metadata.json"),
        ("Hudi", ".hoodie/hoodie.properties"),
    ],
)
def test_folder_inside_a_table_is_refused_after_few_requests(
    bucket: Bucket, kind: str, metadata: str
) -> None:
    bucket.put(f"lake/t/{metadata}", b"{}")
    source = events(bucket, "lake/t/data")
    before = bucket.content()

    report = converted(source)

    assert report.outcome == "refused"
    conditions.check(
        report.error,
        "FOLDER_BELONGS_TO_TABLE",
        folder=source,
        format=kind,
        table=f"{bucket.uri}/lake/t",
    )
    [skipped] = convert.run([source], resolve=no_session, recursive=True).tables
    assert skipped.outcome == "skipped"
    assert bucket.content() == before


def test_owner_search_takes_three_requests_per_folder(s3: Bucket, weather: Weather) -> None:
    for number in range(1_200):
        s3.put(f"lake/t/_delta_log/{number:020}.notes", b"")
    source = events(s3, "lake/t/data")
    queries: list[str] = []
    weather.before = lambda request, environ: queries.append(environ["QUERY_STRING"])

    assert converted(source).outcome == "converted"

    above = [query for query in queries if "prefix=" in query and "data" not in query]
    assert 3 <= len(above) <= 9, above


def test_login_restricted_to_prefix_converts_there(s3: Bucket, weather: Weather) -> None:
    source = events(s3, "mine/t")

    def forbid(request: str, environ: dict[str, Any]) -> tuple[str, bytes] | None:
        query = environ["QUERY_STRING"]
        if "prefix=" in query and "prefix=mine%2Ft" not in query and "prefix=mine/t" not in query:
            return "403 Forbidden", b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>"
        return None

    weather.before = forbid
    assert converted(source).outcome == "converted"


def test_store_sink_log_selects_committed_files(s3: Bucket) -> None:
    s3.put("sink/a.parquet", parquet({"id": [1]}))
    s3.put("sink/left.parquet", parquet({"id": [1]}))
    entry = {"path": f"s3a://{s3.uri.removeprefix('s3://')}/sink/a.parquet", "action": "add"}
    s3.put("sink/_spark_metadata/0", f"v1\n{json.dumps(entry)}".encode())

    assert converted(f"{s3.uri}/sink").outcome == "converted"
    assert rows(s3, f"{s3.uri}/sink") == [{"id": 1}]


def test_recursive_convert_finds_all_store_tables(bucket: Bucket) -> None:
    for root in ("lake/sales/orders", "lake/sales/lines", "lake/events"):
        events(bucket, root)
    bucket.put("lake/plain/a", parquet({"id": [1]}))
    bucket.put("lake/delta/_delta_log/00000000000000000000.json", b"{}")
    bucket.put("lake/notes/readme.txt", b"nothing")
    bucket.put("lake2/other/a.parquet", parquet({"id": [1]}))

    found = convert.run([f"{bucket.uri}/lake"], recursive=True, dry_run=True, resolve=no_session).tables

    below = [report.source.removeprefix(f"{bucket.uri}/lake/") for report in found]
    assert below == ["delta", "events", "plain", "sales/lines", "sales/orders"]
    assert [report.outcome for report in found] == ["already", *["planned"] * 4]


def test_listing_of_many_pages_is_complete(s3: Bucket, weather: Weather) -> None:
    """A page of S3 has a thousand names."""
    many = soak.amount(1_010, 12_000)
    body = parquet({"id": [1]})
    for number in range(many):
        s3.put(f"many/{number:06}.parquet", body)
    weather.requests.clear()

    listed = list(storage.ObjectStore(s3.uri).below(storage.ObjectPath(s3.uri, "many")))

    assert [item.path for item in listed] == [f"{number:06}.parquet" for number in range(many)]
    assert {item.size for item in listed} == {len(body)}


def test_concurrent_converters_commit_once(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    source, together, real = events(bucket), threading.Barrier(2), initial_commit.put

    def put(*args: Any, **options: Any) -> None:
        together.wait(60)
        real(*args, **options)

    monkeypatch.setattr(initial_commit, "put", put)
    done: list[convert.TableReport] = []
    threads = [threading.Thread(target=lambda: done.append(converted(source))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(report.outcome for report in done) == ["converted", "failed"]
    [error] = [report.error for report in done if report.error]
    conditions.check(error, "CONVERTED_BY_ANOTHER_PROCESS", table=source)
    assert len(rows(bucket, source)) == 12
    assert [key for key in bucket.names() if "_delta_log" in key] == [f"events/{FIRST}"]


@pytest.mark.parametrize("silently", [True, False])
def test_unsafe_store_is_refused_without_option(
    s3: Bucket, weather: Weather, silently: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store, "_LATER", object_store._AT_FIRST)

    def before(request: str, environ: dict[str, Any]) -> tuple[str, bytes] | None:
        if environ.pop("HTTP_IF_NONE_MATCH", None) and not silently:
            return "501 Not Implemented", b"<Error><Code>NotImplemented</Code></Error>"
        return None

    source = events(s3)
    unchanged = s3.content()
    weather.before = before

    refused = converted(source)

    assert refused.outcome == "failed"
    conditions.check(refused.error, "STORE_NOT_EXCLUSIVE", store=s3.uri)
    assert s3.content() == unchanged
    assert converted(source, unsafe_commit=True).outcome == "converted"
    assert len(rows(s3, source)) == 12


@pytest.mark.parametrize("lost", ["GET", "the answer of the commit"])
def test_lost_requests_are_retried(s3: Bucket, weather: Weather, lost: str) -> None:
    source = events(s3)
    seen: list[str] = []

    def before(request: str, environ: dict[str, Any]) -> tuple[str, bytes] | None:
        if lost == "GET" and request.startswith("GET") and request.endswith(".parquet"):
            seen.append(request)
            return ("", b"") if len(seen) % 2 else None
        return None

    def after(request: str) -> bool:
        if lost != "GET" and request.endswith(FIRST) and request.startswith("PUT"):
            seen.append(request)
            return len(seen) == 1
        return False

    weather.before, weather.after = before, after

    assert converted(source).outcome == "converted"
    assert len(seen) > 1
    assert len(rows(s3, source)) == 12


def test_unreachable_network_is_one_error_and_table_is_unchanged(
    s3: Bucket, weather: Weather, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = events(s3)
    before = s3.content()
    monkeypatch.setattr(object_store, "_LATER", object_store._AT_FIRST)
    weather.before = lambda request, environ: ("", b"") if request.endswith("part 0.parquet") else None

    report = converted(source)

    weather.before = lambda request, environ: None
    assert report.outcome == "refused"
    conditions.check(
        report.error,
        "UNREADABLE_FILES",
        files=re.compile(r"part 0.parquet can't be read \(nothing answers\): Check the network"),
    )
    assert s3.content() == before


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"<Error><Code>InvalidAccessKeyId</Code></Error>", "access is refused: InvalidAccessKeyId"),
        (b"<Error><Code>SignatureDoesNotMatch</Code></Error>", "access is refused: SignatureDoesNotMatch"),
    ],
)
def test_wrong_credentials_are_one_error(s3: Bucket, weather: Weather, answer: bytes, expected: str) -> None:
    weather.before = lambda request, environ: ("403 Forbidden", answer)

    report = converted(f"{s3.uri}/events")

    assert report.outcome == "failed"
    conditions.check(
        report.error,
        "STORE_REQUEST_FAILED",
        reason=expected,
        advice=re.compile("set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"),
    )
    assert len(str(report.error).splitlines()) == 2


def test_wrong_azure_key_is_refused(azurite: str, logged_out: None, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = object_stores.azure(azurite, f"lake{next(_numbers)}")
    log_in(monkeypatch, bucket)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "d3Jvbmc=")

    report = converted(f"{bucket.uri}/events")

    assert report.outcome == "failed"
    conditions.check(
        report.error,
        "STORE_REQUEST_FAILED",
        reason="access is refused: AuthorizationFailure",
        advice=re.compile("az login"),
    )


@pytest.mark.parametrize(
    ("uri", "environment", "parameters"),
    [
        (
            "s3://lake/events",
            {},
            {
                "reason": "no credentials are found",
                "advice": re.compile("(?i)^set AWS_ACCESS_KEY_ID"),
            },
        ),
        (
            "s3://lake/events",
            {"AWS_PROFILE": "missing"},
            {"reason": "The config profile (missing) could not be found"},
        ),
        ("s3://nothing/events", None, {"reason": "there is no s3://nothing"}),
        ("abfss://lake/events", {}, {"object": re.compile("^abfss://lake")}),
    ],
)
def test_missing_login_is_reported(
    s3: Bucket,
    monkeypatch: pytest.MonkeyPatch,
    uri: str,
    environment: dict[str, str] | None,
    parameters: dict[str, object],
) -> None:
    if environment is not None:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)

    report = converted(uri)

    assert report.outcome == "failed"
    conditions.check(report.error, "STORE_REQUEST_FAILED", **parameters)


def test_aws_profile_is_a_login(s3: Bucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.delenv(name)
    profile = tmp_path / "credentials"
    profile.write_text("[work]\naws_access_key_id = a\naws_secret_access_key = b\nregion = eu-west-1\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(profile))
    monkeypatch.setenv("AWS_PROFILE", "work")

    assert converted(events(s3)).outcome == "converted"


def test_undo_refuses_store_table_with_later_commit(bucket: Bucket) -> None:
    source = events(bucket)
    converted(source)
    deltalake.write_deltalake(
        source,
        pa.table({"id": [99], "v": ["new"], "k": ["x"]}),
        mode="append",
        storage_options=bucket.options,
    )

    with conditions.raises("WRITTEN_AFTER_CONVERSION", table=source):
        convert.undo(source, resolve=no_session)
    assert len(rows(bucket, source)) == 13


EFFECTS = ("create_text", "write_text", "remove")
LOOKS = ("read_text", "exists", "names", "all_names", "modified")


def before_each(monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], happens: Callable[[], None]) -> None:
    """Run a function before each call of a store's methods."""
    for name in names:

        def method(*args: Any, real: Any = getattr(object_store.ObjectStore, name)) -> Any:
            happens()
            return real(*args)

        monkeypatch.setattr(object_store.ObjectStore, name, method)


def of(bucket: Bucket, root: str) -> set[str]:
    return {name for name in bucket.names() if name.startswith(f"{root}/")}


def test_writer_during_undo_wins_or_is_refused(s3: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer has the table open, and commits before each request of an undo in turn."""
    outcomes = []
    for moment in count():
        source, left = events(s3, f"events{moment}"), [moment]
        before = of(s3, f"events{moment}")
        converted(source)
        table = deltalake.DeltaTable(source, storage_options=s3.options)
        written: list[bool] = []

        def write(left: list[int] = left, table: Any = table, written: list[bool] = written) -> None:
            left[0] -= 1
            if left[0] == -1:
                try:
                    deltalake.write_deltalake(
                        table, pa.table({"id": [99], "v": ["new"], "k": ["x"]}), mode="append"
                    )
                except deltalake.exceptions.DeltaError:
                    written.append(False)
                else:
                    written.append(True)

        with monkeypatch.context() as patched:
            before_each(patched, EFFECTS + LOOKS, write)
            try:
                convert.undo(source, resolve=no_session)
                undone = True
            except Refused:
                undone = False
        if not written:
            break
        outcomes.append(undone)
        if undone:
            assert written == [False]
            # Files of a writer that couldn't commit are no rows of the folder.
            assert of(s3, f"events{moment}") - before <= {name for name in s3.names() if "k=x/" in name}
        else:
            assert written == [True]
            assert len(rows(s3, source)) == 13
    assert set(outcomes) == {True, False}


class Death(BaseException):
    """The end of a process."""


def test_interrupted_undo_is_resumed_and_its_table_is_unreadable(
    s3: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The undo dies before each of its effects in turn."""
    for deadly in count():
        root, left = f"events{deadly}", [deadly]
        source = events(s3, root)
        before = of(s3, root)
        converted(source)

        def die(left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == -1:
                raise Death

        with monkeypatch.context() as patched, suppress(Death):
            before_each(patched, EFFECTS, die)
            convert.undo(source, resolve=no_session)
        if left[0] >= 0:
            break
        if deadly:
            assert converted(source).outcome == "refused"
            with conditions.raises("UNDO_RUNNING_OR_DIED", table=source):
                convert.undo(source, resolve=no_session)
            monkeypatch.setattr(initial_commit, "_PATIENCE", 0)
        convert.undo(source, resolve=no_session)
        monkeypatch.undo()
        log_in(monkeypatch, s3)
        assert of(s3, root) == before
    # The claim, the first commit, and the claim again.
    assert deadly == 3


def test_superseded_undo_removes_nothing(s3: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    source = events(s3)
    converted(source)
    real = object_store.ObjectStore.remove
    again: list[Any] = []

    def remove(store: object_store.ObjectStore, path: storage.ObjectPath) -> None:
        if not again:
            again.append(path)
            with monkeypatch.context() as patched:
                patched.setattr(initial_commit, "_PATIENCE", 0)
                convert.undo(source, resolve=no_session)
            assert converted(source).outcome == "converted"
            path = path.parent / "nothing"
        real(store, path)

    monkeypatch.setattr(object_store.ObjectStore, "remove", remove)

    with conditions.raises("UNDO_RUNNING", table=source):
        convert.undo(source, resolve=no_session)
    assert len(rows(s3, source)) == 12


def test_convert_uses_spark_without_cloud_extra(s3: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    from tableferry.convert import facts

    monkeypatch.setattr(
        facts, "find_spec", lambda name: None if name == "obstore" else importlib.util.find_spec(name)
    )
    with pytest.raises(AssertionError, match="a store needs no Spark"):
        converted(f"{s3.uri}/events")


@pytest.mark.parametrize("behaviour", STATE)
def test_object_store_behaves_like_all_storage(
    bucket: Bucket, behaviour: Callable[[storage.ObjectStore, storage.ObjectPath], None]
) -> None:
    folder = storage.ObjectPath(bucket.uri, "state")
    behaviour(storage.ObjectStore(bucket.uri), folder)
    storage.remove(folder)
    assert bucket.names() == []


def test_folder_is_moved_with_the_object_that_has_its_name(bucket: Bucket) -> None:
    folder = storage.ObjectPath(bucket.uri, "state")
    for name in ("old", "old/inside", "older"):
        bucket.put(f"state/{name}", name.encode())
    storage.move(folder / "old", folder / "new")
    assert set(bucket.names()) == {"state/new", "state/new/inside", "state/older"}


def synced(source: str, **options: Any) -> convert.TableSync:
    [table] = convert.sync([source], resolve=no_session, **options).tables
    return table


def test_sync_updates_store_table(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    source = events(bucket)
    assert converted(source).outcome == "converted"
    assert synced(source).outcome == "current"
    for number in range(10):
        bucket.put(f"events/k=new/{number}.parquet", parquet({"id": [100 + number], "w": [1.5]}))
        report = synced(source)
        assert (report.outcome, report.error, report.notes) == ("synced", None, ())
    assert [f"{10:020}.checkpoint.parquet" in key for key in bucket.names()].count(True) == 1
    found = rows(bucket, source)
    assert len(found) == 22
    assert {row["w"] for row in found if row["k"] == "new"} == {1.5}
    assert synced(source).outcome == "current"
    with conditions.raises("WRITTEN_AFTER_CONVERSION", table=source):
        convert.undo(source, resolve=no_session)


def test_concurrent_syncs_write_one_version_despite_lost_responses(s3: Bucket, weather: Weather) -> None:
    source = events(s3)
    assert converted(source).outcome == "converted"
    s3.put("events/k=new/a.parquet", parquet({"id": [100]}))
    lost = count(1)
    weather.after = lambda request: request.startswith("PUT") and SECOND in request and next(lost) == 1
    assert synced(source).outcome == "synced"
    assert len(rows(s3, source)) == 13
    s3.put("events/k=new/b.parquet", parquet({"id": [101]}))
    reports: list[convert.TableSync] = []
    threads = [threading.Thread(target=lambda: reports.append(synced(source))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [report.error for report in reports] == [None] * 4
    assert [report.outcome for report in reports].count("synced") == 1
    assert len(rows(s3, source)) == 14
    assert f"events/_delta_log/{3:020}.json" not in s3.names()


def test_store_iceberg_table_is_converted(bucket: Bucket, tmp_path: Path) -> None:
    """Its metadata have the old location, and it was copied afterwards."""
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/wh")
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", schema=pa.schema([("id", pa.int64()), ("k", pa.string())]))
    with table.update_spec() as update:
        update.add_field("k", IdentityTransform())
    table.append(pa.table({"id": [1, 2], "k": ["a/b %", None]}))
    root = Path(table.location().removeprefix("file://"))
    for path in root.rglob("*"):
        if path.is_file():
            bucket.put(f"ice/{path.relative_to(root)}", path.read_bytes())
    before = bucket.content()
    source = f"{bucket.uri}/ice"
    assert converted(source).error is None
    assert rows(bucket, source) == [{"id": 1, "k": "a/b %"}, {"id": 2, "k": None}]
    assert converted(source).outcome == "already"
    convert.undo(source, resolve=no_session)
    assert bucket.content() == before
