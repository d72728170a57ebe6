"""Owners, readers and writers of Unity Catalog tables, with the real client and a fake workspace."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.errors import AnalysisException
from tests import conditions
from tests.soak import amount
from tests.workspace import FakeWorkspace

from tableferry import workspace
from tableferry.access import grants
from tableferry.access.unity_catalog import UnityAccess
from tableferry.errors import SessionError
from tableferry.spark.tables import TableName

NAME = "main.shop.orders"
TABLE = TableName.parse(NAME)
COPY = TableName.parse("main.shop.orders_iceberg")
ME = "someone@example.com"
ROBOT = "11111111-2222-3333-4444-555555555555"


def no_rows(query: str) -> Sequence[Sequence[Any]]:
    return []


def access(
    messages: list[str] | None = None,
    rows: Callable[[str], Sequence[Sequence[Any]]] = no_rows,
    **options: Any,
) -> UnityAccess:
    return UnityAccess(
        workspace.client(), rows, say=(messages if messages is not None else []).append, **options
    )


class Crash(BaseException):
    """The crash of the process."""


@contextmanager
def dying(unity: UnityAccess, after: int, *, answered: bool) -> Iterator[None]:
    """Crash at the n-th request: before it is sent, or after its response."""
    api: Any = unity._client.api_client
    real, left = api.do, [after]

    def do(*args: Any, **kwargs: Any) -> Any:
        left[0] -= 1
        if left[0] == 0 and not answered:
            raise Crash
        try:
            return real(*args, **kwargs)
        finally:
            if left[0] == 0:
                raise Crash

    api.do = do
    try:
        yield
    finally:
        api.do = real


def test_write_privileges_are_revoked_and_restored(logged_in: FakeWorkspace) -> None:
    before = {"etl": {"MODIFY", "SELECT"}, "lake": {"ALL_PRIVILEGES", "MANAGE"}, "bi": {"SELECT"}}
    logged_in.put_table(NAME, "boss@corp.com", **before)
    messages: list[str] = []
    unity = access(messages)
    rights = unity.rights_to_write(TABLE)
    assert rights["grants"] == {
        "etl": {"taken": ["MODIFY"], "left": ["SELECT"], "lent": []},
        "lake": {
            "taken": ["ALL_PRIVILEGES"],
            "left": ["APPLY_TAG", "MANAGE", "SELECT"],
            "lent": ["APPLY_TAG", "SELECT"],
        },
    }
    unity.take(TABLE, rights)
    blocked = {"etl": {"SELECT"}, "lake": {"SELECT", "APPLY_TAG", "MANAGE"}, "bi": {"SELECT"}}
    assert logged_in.granted(NAME) == blocked
    for _ in range(2):
        unity.give_back(TABLE, rights)
        assert logged_in.granted(NAME) == before
    assert messages == []


def test_inherited_privileges_are_recorded(logged_in: FakeWorkspace) -> None:
    logged_in.put_table(NAME, "boss@corp.com", **{ME: {"MODIFY", "MANAGE"}})
    logged_in.grants["schema", "main.shop"] = {"etl": {"MODIFY", "SELECT"}}
    logged_in.grants["catalog", "main"] = {"etl": {"ALL_PRIVILEGES"}, "bi": {"SELECT", "USE_CATALOG"}}
    unity = access()
    rights = unity.rights_to_write(TABLE)
    assert rights == {
        "grants": {},
        "owner": "boss@corp.com",
        "inherited": {"etl": ["ALL_PRIVILEGES on catalog main", "MODIFY on schema main.shop"]},
        "spared": ME,
    }
    unity.take(TABLE, rights)
    assert logged_in.granted(NAME) == {ME: {"MODIFY", "MANAGE"}}


def test_table_without_writers_has_an_empty_record(logged_in: FakeWorkspace) -> None:
    logged_in.put_table(NAME, "boss@corp.com", bi={"SELECT"})
    assert access().rights_to_write(TABLE) == {}
    access().take(TABLE, {})
    access().give_back(TABLE, {})
    assert not any(request.startswith("PATCH") for request in logged_in.asked)


def test_privilege_unknown_to_the_client_is_restored(logged_in: FakeWorkspace) -> None:
    before = {"lake": {"ALL_PRIVILEGES", "EXTERNAL_USE_SCHEMA", "A_RIGHT_OF_NEXT_YEAR"}}
    logged_in.put_table(NAME, **before)
    unity = access()
    rights = unity.rights_to_write(TABLE)
    unity.take(TABLE, rights)
    assert "A_RIGHT_OF_NEXT_YEAR" in logged_in.granted(NAME)["lake"]
    unity.give_back(TABLE, rights)
    assert logged_in.granted(NAME) == before


def test_concurrent_changes_of_grants_are_kept(logged_in: FakeWorkspace) -> None:
    logged_in.put_table(
        NAME,
        gone={"SELECT", "MODIFY"},
        less={"ALL_PRIVILEGES"},
        more={"MODIFY", "SELECT"},
        bare={"MODIFY"},
    )
    messages: list[str] = []
    unity = access(messages)
    rights = unity.rights_to_write(TABLE)
    unity.take(TABLE, rights)
    now = logged_in.grants["table", NAME]
    now["gone"] = set()
    now["less"] = {"SELECT"}
    now["more"] |= {"APPLY_TAG"}
    now["new"] = {"SELECT", "MODIFY"}
    for _ in range(2):
        unity.give_back(TABLE, rights)
        assert logged_in.granted(NAME) == {
            "less": {"SELECT", "MODIFY"},
            "more": {"MODIFY", "SELECT", "APPLY_TAG"},
            "bare": {"MODIFY"},
            "new": {"SELECT", "MODIFY"},
        }
    assert [line.split(",")[0] for line in messages] == [
        f"{NAME}: a user revoked grants of {who} while writes were blocked" for who in ("gone", "less")
    ]


def test_deleted_principal_does_not_stop_the_restoration(logged_in: FakeWorkspace) -> None:
    logged_in.put_table(NAME, leaver={"MODIFY"}, lake={"ALL_PRIVILEGES"})
    messages: list[str] = []
    unity = access(messages)
    rights = unity.rights_to_write(TABLE)
    unity.take(TABLE, rights)
    logged_in.strangers.add("leaver")
    unity.give_back(TABLE, rights)
    assert logged_in.granted(NAME) == {"lake": {"ALL_PRIVILEGES"}}
    assert messages == [f"{NAME}: leaver was deleted, and its grants too"]


def block(unity: UnityAccess, noted: list[Mapping[str, Any]]) -> None:
    """Block writes as the step does: record the privileges first, and revoke all recorded ones."""
    if taken := unity.rights_to_write(TABLE):
        noted.append(taken)
    for rights in noted:
        unity.take(TABLE, rights)


def unblock(unity: UnityAccess, noted: list[Mapping[str, Any]]) -> None:
    for rights in reversed(noted):
        unity.give_back(TABLE, rights)


def assert_reads_without_writes(before: dict[str, set[str]], blocked: dict[str, set[str]]) -> None:
    assert not any(privileges & grants.WRITING for privileges in blocked.values())
    for who, privileges in before.items():
        reading = bool(privileges & {"SELECT", "ALL_PRIVILEGES"})
        assert reading == ("SELECT" in blocked.get(who, set()))
        assert privileges - grants.WRITING <= blocked.get(who, set())


@pytest.mark.parametrize("one_way_only", [False, True])
@pytest.mark.parametrize("revoking_all_revokes_each", [False, True])
def test_revocation_continues_after_a_crash_at_any_request(
    logged_in: FakeWorkspace, revoking_all_revokes_each: bool, one_way_only: bool
) -> None:
    before = {"lake": {"ALL_PRIVILEGES"}, "team": {"ALL_PRIVILEGES", "SELECT", "MANAGE"}, "etl": {"MODIFY"}}
    logged_in.revoking_all_revokes_each = revoking_all_revokes_each
    logged_in.one_way_only = one_way_only
    unity = access()
    crashes = {block: 0, unblock: 0}
    for work in crashes:
        crashed = True
        while crashed:
            logged_in.put_table(NAME, "boss@corp.com", **before)
            noted: list[Mapping[str, Any]] = []
            if work is unblock:
                block(unity, noted)
            try:
                with dying(unity, crashes[work] + 1, answered=True):
                    work(unity, noted)
                crashed = False
            except Crash:
                crashes[work] += 1
                work(unity, noted)
            if work is block:
                assert_reads_without_writes(before, logged_in.granted(NAME))
                unblock(unity, noted)
            assert logged_in.granted(NAME) == before
    assert min(crashes.values()) > 3


PRIVILEGES = st.sets(
    st.sampled_from(["SELECT", "MODIFY", "APPLY_TAG", "MANAGE", "ALL_PRIVILEGES"]), min_size=1
)
GRANTS = st.dictionaries(st.sampled_from(["etl", "lake", "bi", "a b@corp.com", ROBOT]), PRIVILEGES)


@given(
    before=GRANTS,
    crashes=st.lists(st.tuples(st.integers(1, 18), st.booleans()), max_size=4),
    semantics=st.tuples(st.booleans(), st.booleans()),
    page=st.integers(1, 3),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_crash_between_two_requests_loses_no_grant(
    logged_in: FakeWorkspace,
    before: dict[str, set[str]],
    crashes: list[tuple[int, bool]],
    semantics: tuple[bool, bool],
    page: int,
) -> None:
    logged_in.put_table(NAME, "boss@corp.com", **before)
    logged_in.revoking_all_revokes_each, logged_in.one_way_only = semantics
    logged_in.page_of_grants = page
    unity = access()
    noted: list[Mapping[str, Any]] = []
    for work, mine in ((block, crashes[::2]), (unblock, crashes[1::2])):
        for after, answered in mine:
            try:
                with dying(unity, after, answered=answered):
                    work(unity, noted)
            except Crash:
                continue
        work(unity, noted)
        if work is block:
            assert_reads_without_writes(before, logged_in.granted(NAME))
    assert logged_in.granted(NAME) == before


@given(before=GRANTS, added=GRANTS, revoked=GRANTS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_concurrent_grants_and_revocations_are_kept(
    logged_in: FakeWorkspace,
    before: dict[str, set[str]],
    added: dict[str, set[str]],
    revoked: dict[str, set[str]],
) -> None:
    logged_in.put_table(NAME, **before)
    unity = access()
    rights = unity.rights_to_write(TABLE)
    unity.take(TABLE, rights)
    blocked = logged_in.granted(NAME)
    nothing: set[str] = set()
    now = {
        who: blocked.get(who, nothing) - revoked.get(who, nothing) | added.get(who, nothing)
        for who in blocked | added
    }
    logged_in.grants["table", NAME] = {who: set(privileges) for who, privileges in now.items()}
    unity.give_back(TABLE, rights)
    after = logged_in.granted(NAME)
    noted = rights.get("grants", {})
    for who in before | now:
        has, had = after.get(who, nothing), now.get(who, nothing)
        if who not in noted:
            assert has == had
            continue
        taken, others = set(noted[who]["taken"]), grants.WRITING | set(noted[who]["lent"])
        assert has - others == had - others
        gone = blocked.get(who, nothing) & revoked.get(who, nothing) - added.get(who, nothing)
        if not gone:
            assert taken <= has
        elif gone & {"SELECT", "APPLY_TAG"}:
            assert not gone & has
            assert "ALL_PRIVILEGES" not in has - had


def test_grants_and_owner_are_copied_exactly_and_once(logged_in: FakeWorkspace) -> None:
    logged_in.put_table(NAME, "data-owners", etl={"SELECT"}, lake={"SELECT", "APPLY_TAG", "MANAGE"})
    logged_in.put_table(str(COPY), ME, etl={"MODIFY"}, stray={"SELECT"})
    unity = access()
    unity.carry(TABLE, COPY)
    assert logged_in.granted(str(COPY)) == logged_in.granted(NAME)
    assert logged_in.tables[str(COPY)]["owner"] == "data-owners"
    logged_in.asked.clear()
    unity.carry(TABLE, COPY)
    assert not any(request.startswith("PATCH") for request in logged_in.asked)


@given(source=GRANTS, target=GRANTS, after=st.integers(1, 14), answered=st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_copy_of_grants_continues_after_a_crash(
    logged_in: FakeWorkspace,
    source: dict[str, set[str]],
    target: dict[str, set[str]],
    after: int,
    answered: bool,
) -> None:
    logged_in.put_table(NAME, "boss@corp.com", **source)
    logged_in.put_table(str(COPY), ME, **target)
    unity = access()
    try:
        with dying(unity, after, answered=answered):
            unity.carry(TABLE, COPY)
    except Crash:
        unity.carry(TABLE, COPY)
    assert logged_in.granted(str(COPY)) == source
    assert logged_in.tables[str(COPY)]["owner"] == "boss@corp.com"


@given(before=GRANTS)
@settings(max_examples=amount(5, 25), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_grants_follow_the_name_through_migration_and_revert(
    logged_in: FakeWorkspace, before: dict[str, set[str]]
) -> None:
    hive, copy = f"{NAME}_hive", str(COPY)
    logged_in.put_table(NAME, "boss@corp.com", **before)
    logged_in.put_table(copy, ME)
    unity = access()
    noted: list[Mapping[str, Any]] = []
    block(unity, noted)
    unity.carry(TABLE, COPY)
    logged_in.rename_table(NAME, hive)
    logged_in.rename_table(copy, NAME)
    unblock(unity, noted)
    assert logged_in.granted(NAME) == before
    assert logged_in.tables[NAME]["owner"] == "boss@corp.com"
    assert not any(privileges & grants.WRITING for privileges in logged_in.granted(hive).values())

    noted.clear()
    block(unity, noted)
    logged_in.rename_table(NAME, copy)
    logged_in.rename_table(hive, NAME)
    unblock(unity, noted)
    assert logged_in.granted(NAME) == before
    assert not any(privileges & grants.WRITING for privileges in logged_in.granted(copy).values())


def test_copy_without_row_filter_or_mask_is_refused(logged_in: FakeWorkspace) -> None:
    logged_in.put_table(NAME, bi={"SELECT"})
    logged_in.put_table(str(COPY))
    hidden = {
        "row_filter": {"function_name": "main.shop.mine", "input_column_names": ["region"]},
        "columns": [{"name": "email", "mask": {"function_name": "main.shop.masked"}}, {"name": "region"}],
    }
    logged_in.tables[NAME] |= hidden
    hiding = ["a mask on column email", "a row filter"]
    with conditions.raises("TARGET_WITHOUT_PROTECTION", table=NAME, hiding=hiding, target=COPY):
        access().carry(TABLE, COPY)
    assert logged_in.granted(str(COPY)) == {}
    logged_in.tables[str(COPY)] |= hidden
    access().carry(TABLE, COPY)
    assert logged_in.granted(str(COPY)) == {"bi": {"SELECT"}}


def test_view_gets_grants_of_readers_and_keeps_other_grants(logged_in: FakeWorkspace) -> None:
    logged_in.put_table(NAME, "boss@corp.com", bi={"SELECT"}, etl={"MODIFY", "SELECT"}, loader={"MODIFY"})
    logged_in.put_table(str(COPY), ME, team={"SELECT"}, bi={"APPLY_TAG"})
    logged_in.tables[str(COPY)]["table_type"] = "VIEW"
    # A view shows the rows that the table's filter permits, and can't have a filter.
    logged_in.tables[NAME]["row_filter"] = {
        "function_name": "main.shop.mine",
        "input_column_names": ["region"],
    }
    access().carry(TABLE, COPY)
    assert logged_in.granted(str(COPY)) == {
        "bi": {"SELECT", "APPLY_TAG"},
        "etl": {"SELECT"},
        "team": {"SELECT"},
    }
    assert logged_in.tables[str(COPY)]["owner"] == "boss@corp.com"


class Tagged:
    """The SQL of a workspace, which reads and sets tags and refuses other statements.

    Attributes:
        tags: Their values.
        asked: The statements.
        refused: Parts of statements that are denied.
        left: The process crashes at the n-th statement, before or after it's run.
    """

    def __init__(self, *of: dict[tuple[str, str, str], str]) -> None:
        self.tags = {key: value for tags in of for key, value in tags.items()}
        self.asked: list[str] = []
        self.refused: tuple[str, ...] = ()
        self.left, self.answered = 0, False

    def __call__(self, query: str) -> Sequence[Sequence[Any]]:
        self.asked.append(query)
        self.left -= 1
        if self.left == 0 and not self.answered:
            raise Crash
        try:
            if any(part in query for part in self.refused):
                Denied()(query)
            return self._read(query) if query.startswith("SELECT") else self._set(query)
        finally:
            if self.left == 0:
                raise Crash

    @property
    def set(self) -> list[str]:
        return [query for query in self.asked if query.startswith("ALTER")]

    def of(self, table: str) -> dict[tuple[str, str], str]:
        return {(column, tag): value for (name, column, tag), value in self.tags.items() if name == table}

    def _read(self, query: str) -> list[tuple[str, str, str]]:
        part = r"WHERE schema_name = ('.*?') AND table_name = ('.*?')"
        match = re.fullmatch(
            rf"SELECT '', tag_name, tag_value FROM (`.*`)\.information_schema\.table_tags {part} "
            r"UNION ALL SELECT column_name, tag_name, tag_value "
            rf"FROM (`.*`)\.information_schema\.column_tags {part}",
            query,
        )
        assert match
        assert match.groups()[:3] == match.groups()[3:]
        name = ".".join((match[1].strip("`"), *(_text(text) for text in match.groups()[1:3])))
        return [(column, tag, value) for (column, tag), value in self.of(name).items()]

    def _set(self, statement: str) -> list[tuple[str, str, str]]:
        match = re.fullmatch(
            r"ALTER (?:TABLE|VIEW) (.*?)(?: ALTER COLUMN `((?:[^`]|``)+)`)? SET TAGS \((.*)\)", statement
        )
        assert match
        table = ".".join(TableName.parse(match[1]).parts)
        text = r"'(?:[^'\\]|\\.)*'"
        assert re.fullmatch(rf"{text}( = {text})?(, {text}( = {text})?)*", match[3])
        for pair in re.finditer(rf"({text})(?: = ({text}))?", match[3]):
            key = table, (match[2] or "").replace("``", "`"), _text(pair[1])
            self.tags[key] = _text(pair[2] or "''")
        return []


def _text(literal: str) -> str:
    return re.sub(r"\\(.)", r"\1", literal[1:-1])


SOURCE_TAGS = {
    (NAME, "", "domain"): "shop",
    (NAME, "", "certified"): "",
    (NAME, "Email", "pii"): "it's \\ `e`",
    (NAME, "a`b c", "k'"): "",
}


@pytest.fixture
def two_tables(logged_in: FakeWorkspace) -> FakeWorkspace:
    logged_in.put_table(NAME, "boss@corp.com", bi={"SELECT"})
    logged_in.put_table(str(COPY), ME)
    return logged_in


def demand_access(there: FakeWorkspace) -> None:
    assert there.granted(str(COPY)) == {"bi": {"SELECT"}}
    assert there.tables[str(COPY)]["owner"] == "boss@corp.com"


def test_tags_are_copied_once(two_tables: FakeWorkspace) -> None:
    sql = Tagged(SOURCE_TAGS)
    messages: list[str] = []
    unity = access(messages, sql)
    unity.carry(TABLE, COPY)
    copy = "`main`.`shop`.`orders_iceberg`"
    assert sql.set == [
        f"ALTER TABLE {copy} SET TAGS ('certified', 'domain' = 'shop')",
        f"ALTER TABLE {copy} ALTER COLUMN `Email` SET TAGS ('pii' = 'it\\'s \\\\ `e`')",
        f"ALTER TABLE {copy} ALTER COLUMN `a``b c` SET TAGS ('k\\'')",
    ]
    assert sql.of(str(COPY)) == sql.of(NAME)
    demand_access(two_tables)
    sql.asked.clear()
    unity.carry(TABLE, COPY)
    assert sql.set == messages == []


def test_only_different_tags_are_set(two_tables: FakeWorkspace) -> None:
    there = {
        (str(COPY), "", "domain"): "old",
        (str(COPY), "", "mine"): "stays",
        (str(COPY), "", "Certified"): "another tag",
        (str(COPY), "email", "pii"): SOURCE_TAGS[NAME, "Email", "pii"],
        (str(COPY), "a`b c", "k'"): "",
    }
    sql = Tagged(SOURCE_TAGS, there)
    access(rows=sql).carry(TABLE, COPY)
    assert sql.set == ["ALTER TABLE `main`.`shop`.`orders_iceberg` SET TAGS ('certified', 'domain' = 'shop')"]
    assert sql.of(str(COPY))["", "mine"] == "stays"


def test_table_without_tags_needs_one_query(two_tables: FakeWorkspace) -> None:
    sql = Tagged({(str(COPY), "", "mine"): "stays"})
    access(rows=sql).carry(TABLE, COPY)
    assert len(sql.asked) == 1
    demand_access(two_tables)


def test_tags_are_copied_to_another_catalog_with_any_names(logged_in: FakeWorkspace) -> None:
    odd, lake = TableName(("my-cat", "It's", "or`ders")), TableName(("lake", "it's", "or`ders"))
    for table in (odd, lake):
        logged_in.put_table(".".join(table.parts), ME)
    sql = Tagged({("my-cat.it's.or`ders", "", "domain"): "shop"})
    access(rows=sql).carry(odd, lake)
    assert sql.set == ["ALTER TABLE `lake`.`it's`.`or``ders` SET TAGS ('domain' = 'shop')"]
    assert sql.of("lake.it's.or`ders") == {("", "domain"): "shop"}


def test_tags_of_a_view_use_statements_of_all_runtimes(two_tables: FakeWorkspace) -> None:
    two_tables.tables[str(COPY)]["table_type"] = "VIEW"
    sql = Tagged({(NAME, "", "domain"): "shop", (NAME, "id", "pii"): ""})
    access(rows=sql).carry(TABLE, COPY)
    assert [statement.split(" `")[0] for statement in sql.set] == ["ALTER VIEW", "ALTER TABLE"]


@pytest.mark.parametrize("unreadable", ["'orders'", "'orders_iceberg'"])
def test_unreadable_tags_are_reported_and_grants_are_copied(
    two_tables: FakeWorkspace, unreadable: str
) -> None:
    sql = Tagged(SOURCE_TAGS)
    sql.refused = (unreadable,)
    messages: list[str] = []
    access(messages, sql).carry(TABLE, COPY)
    [message] = messages
    assert message.startswith(f"the tags of {NAME} and {COPY} can't be read ([INSUFFICIENT")
    assert "grant SELECT on table_tags and column_tags" in message
    assert sql.set == []
    demand_access(two_tables)


def test_copy_that_lacks_a_tag_gets_no_grants(two_tables: FakeWorkspace) -> None:
    sql = Tagged(SOURCE_TAGS)
    sql.refused = ("'certified'", "`Email`")
    unity = access(rows=sql)
    failed = re.compile(r"^certified \(\[INSUFFICIENT.*; pii of column Email \(\[INSUFFICIENT")
    with conditions.raises("TAGS_NOT_COPIED", source=NAME, table=COPY, failed=failed):
        unity.carry(TABLE, COPY)
    assert sql.of(str(COPY)) == {("", "domain"): "shop", ("a`b c", "k'"): ""}
    assert two_tables.granted(str(COPY)) == {}
    sql.refused = ()
    unity.carry(TABLE, COPY)
    assert sql.of(str(COPY)) == sql.of(NAME)
    demand_access(two_tables)


def test_tags_are_set_before_grants(two_tables: FakeWorkspace) -> None:
    sql = Tagged(SOURCE_TAGS)

    def rows(query: str) -> Sequence[Sequence[Any]]:
        assert two_tables.granted(str(COPY)) == {}
        assert two_tables.tables[str(COPY)]["owner"] == ME
        return sql(query)

    access(rows=rows).carry(TABLE, COPY)
    assert len(sql.set) == 3
    demand_access(two_tables)


@pytest.mark.parametrize("answered", [False, True])
def test_copy_of_tags_continues_after_any_crash(two_tables: FakeWorkspace, answered: bool) -> None:
    crashes, crashed = 0, True
    while crashed:
        two_tables.put_table(str(COPY), ME)
        sql = Tagged(SOURCE_TAGS)
        sql.left, sql.answered = crashes + 1, answered
        try:
            access(rows=sql).carry(TABLE, COPY)
            crashed = False
        except Crash:
            crashes += 1
            access(rows=sql).carry(TABLE, COPY)
        assert sql.of(str(COPY)) == sql.of(NAME)
        demand_access(two_tables)
    assert crashes == 5


VALUES = st.dictionaries(
    st.tuples(st.sampled_from(["", "id", "a`b"]), st.sampled_from(["k", "K", "it's", "a = b, c", "\\"])),
    st.sampled_from(["", "x", "X", "', 'y", "\\'"]),
)


@given(source=VALUES, target=VALUES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_copy_has_tags_of_the_source_and_its_own(
    two_tables: FakeWorkspace, source: dict[tuple[str, str], str], target: dict[tuple[str, str], str]
) -> None:
    sql = Tagged(
        {(NAME, *key): value for key, value in source.items()},
        {(str(COPY), *key): value for key, value in target.items()},
    )
    unity = access(rows=sql)
    unity.carry(TABLE, COPY)
    assert sql.of(NAME) == source
    assert sql.of(str(COPY)) == target | source
    # Copied back, as a revert does.
    sql.asked.clear()
    unity.carry(COPY, TABLE)
    assert sql.of(NAME) == sql.of(str(COPY))
    assert bool(sql.set) == (target | source != source)


def test_deleted_owner_is_reported(logged_in: FakeWorkspace) -> None:
    logged_in.put_table(NAME, "left@corp.com")
    logged_in.put_table(str(COPY), ME)
    logged_in.strangers.add("left@corp.com")
    with conditions.raises(
        "UNITY_CATALOG_FAILED",
        failure=f"The owner of {COPY} can't be set to left@corp.com, who owns {NAME}",
    ):
        access().carry(TABLE, COPY)


@pytest.mark.parametrize(
    ("owner", "addresses"),
    [
        (None, ()),
        ("boss@corp.com", ("boss@corp.com",)),
        (ROBOT, ()),
        ("team", ("a@corp.com", "b@corp.com")),
        ('odd "team" \\', ("b@corp.com",)),
        ("elsewhere", ("elsewhere",)),
        ("everybody", ("everybody",)),
    ],
)
def test_owners_are_e_mail_addresses(
    logged_in: FakeWorkspace, owner: str | None, addresses: tuple[str, ...]
) -> None:
    logged_in.put_table(NAME, owner)
    logged_in.users = {"1": "a@corp.com", "2": "b@corp.com", **{f"e{n}": f"{n}@corp.com" for n in range(51)}}
    logged_in.groups = {
        "team": ["Users/1", "Users/left", "Groups/inner", "ServicePrincipals/9"],
        "inner": ["Users/2", "Groups/team"],
        'odd "team" \\': ["Users/2"],
        "everybody": [f"Users/e{n}" for n in range(51)],
    }
    assert access().owners(TABLE) == addresses


def test_group_that_only_administrators_read_keeps_its_name(logged_in: FakeWorkspace) -> None:
    logged_in.put_table(NAME, "team")
    logged_in.hidden = True
    messages: list[str] = []
    unity = access(messages)
    assert unity.owners(TABLE) == unity.owners(TABLE) == ("team",)
    assert len(messages) == 1
    assert "must be an administrator" in messages[0]


def test_readers_are_read_from_the_lineage_table(logged_in: FakeWorkspace) -> None:
    logged_in.put_table("main.shop.Orders", "boss@corp.com")
    asked: list[str] = []

    def rows(query: str) -> Sequence[Sequence[Any]]:
        asked.append(query)
        return [("z@corp.com",), (ROBOT,), ("boss@corp.com",), ("System-User",), (ME,), ("a@corp.com",)]

    users = access(rows=rows).downstream_users(TableName.parse("main.shop.Orders"))
    assert users == ("a@corp.com", "z@corp.com")
    [query] = asked
    assert f"source_table_full_name = '{NAME}'\n" in query
    assert "date_sub(current_date(), 90)" in query


class Denied:
    """The SQL of a workspace without permission on system tables."""

    def __init__(self, condition: str = "INSUFFICIENT_PERMISSIONS") -> None:
        self.condition = condition
        self.asked = 0

    def __call__(self, query: str) -> Sequence[Sequence[Any]]:
        self.asked += 1
        raise AnalysisException(
            f"[{self.condition}] User does not have USE SCHEMA on Schema 'system.access'.",
            errorClass=self.condition,
            messageParameters={},
        )


def test_lineage_api_replaces_an_unreadable_system_table_with_a_warning(
    logged_in: FakeWorkspace,
) -> None:
    logged_in.put_table(NAME, "boss@corp.com")
    logged_in.put_table("main.mart.sales", "team")
    logged_in.put_table("main.mart.secret", "hidden@corp.com")
    logged_in.closed.add("main.mart.secret")
    logged_in.users, logged_in.groups = {"1": "a@corp.com"}, {"team": ["Users/1"]}
    logged_in.jobs[7] = {"job_id": 7, "run_as_user_name": "runner@corp.com"}
    logged_in.lineage[NAME] = [
        {"tableInfo": {"catalog_name": "main", "schema_name": "mart", "name": "sales"}},
        {
            "tableInfo": {"catalog_name": "main", "schema_name": "mart", "name": "secret"},
            "jobInfos": [{"workspace_id": 1, "job_id": 7}, {"workspace_id": 2, "job_id": 8}],
        },
        {"notebookInfos": [{"workspace_id": 1, "notebook_id": 3}]},
    ]
    messages: list[str] = []
    denied = Denied()
    unity = access(messages, denied)
    for _ in range(2):
        assert unity.downstream_users(TABLE) == ("a@corp.com", "runner@corp.com")
    assert denied.asked == 1
    assert len(messages) == 1
    assert "SELECT on system.access.table_lineage" in messages[0]
    assert "users who query a table get no notification" in messages[0]


def test_temporary_error_of_the_lineage_table_is_retried(logged_in: FakeWorkspace) -> None:
    logged_in.put_table(NAME)
    denied = Denied("CLUSTER_IS_BUSY")
    unity = access([], denied)
    assert [unity.downstream_users(TABLE), unity.downstream_users(TABLE)] == [(), ()]
    assert denied.asked == 2


def test_unreadable_lineage_api_is_reported(logged_in: FakeWorkspace) -> None:
    logged_in.put_table(NAME)
    logged_in.closed.add("lineage")
    messages: list[str] = []
    assert access(messages, Denied()).downstream_users(TABLE) == ()
    assert len(messages) == 2
    assert messages[1].startswith("the lineage API can't be read (User does not have BROWSE")


def test_required_lineage_that_cannot_be_read_is_refused(logged_in: FakeWorkspace) -> None:
    logged_in.put_table(NAME)
    with conditions.raises("LINEAGE_NOT_READABLE"):
        access(rows=Denied(), require_lineage=True).downstream_users(TABLE)


def test_missing_privilege_is_named(logged_in: FakeWorkspace) -> None:
    logged_in.put_table(NAME)
    logged_in.closed.add(NAME)
    reason = re.compile("^User does not have MANAGE on Table")
    with conditions.raises(
        "UNITY_CATALOG_DENIED", failure=f"The grants on {NAME} can't be read", reason=reason
    ):
        access().rights_to_write(TABLE)


def test_missing_table_and_missing_login_are_reported(logged_in: FakeWorkspace) -> None:
    with conditions.raises("UNITY_CATALOG_FAILED", failure=f"{NAME} can't be read"):
        access().owners(TABLE)
    logged_in.token = "another"
    with pytest.raises(SessionError, match="databricks auth login"):
        access().owners(TABLE)


def test_name_without_catalog_is_refused_without_a_request(logged_in: FakeWorkspace) -> None:
    with conditions.raises("TABLE_WITHOUT_CATALOG", table="shop.orders"):
        access().owners(TableName.parse("shop.orders"))


def test_special_characters_in_names_are_quoted(logged_in: FakeWorkspace) -> None:
    odd = "main.shop.grün #1?%2F"
    logged_in.put_table(odd, "boss@corp.com", etl={"MODIFY"})
    unity, table = access(), TableName(tuple(odd.split(".")))
    assert unity.owners(table) == ("boss@corp.com",)
    unity.take(table, unity.rights_to_write(table))
    assert logged_in.granted(odd) == {}
