"""Replace table names in a view's query, and keep its meaning."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st
from tests import conditions

from tableferry.fleet.views.texts import Verbatim, list_tables, with_names
from tableferry.spark.tables import TableName

NAMESPACE = ("spark_catalog", "sales")
MOVED = ("orders", "customers", "öre", "a.b", "c`d")
NEW = {f"sales.{table}": TableName(("main", "lake", table)) for table in MOVED}
SHORT = {
    "O": "`main`.`lake`.`orders`",
    "C": "`main`.`lake`.`customers`",
    "X": "`spark_catalog`.`crm`.`orders`",
    "T": "`spark_catalog`.`crm`.`t`",
}
CHANGE = re.compile(r"<([^<>|]*)\|([^<>|]*)>")
# A replaced part of a text is written as <old|new>, with short new names.
TEXTS_BEFORE_AND_AFTER = [
    "SELECT id FROM <orders|O>",
    "SELECT id FROM <sales.orders|O>",
    "SELECT id FROM <spark_catalog.sales.orders|O> o",
    "SELECT id FROM <SALES . Orders|O> AS o",
    "SELECT id FROM <`sales`.`orders`|O>",
    # A part of a name with a dot or a backtick.
    "SELECT `a.b`.id FROM <`a.b`|`main`.`lake`.`a.b`>",
    "SELECT id FROM <sales.`c``d`|`main`.`lake`.`c``d`>",
    "SELECT id FROM <`sales.orders`|`spark_catalog`.`sales`.`sales.orders`>",
    "SELECT '🚢', id FROM <öre|`main`.`lake`.`öre`>",
    # Names of unmoved tables are qualified too, because the new view is in another schema.
    "SELECT * FROM <crm.orders|X>",
    "SELECT * FROM <other|`spark_catalog`.`sales`.`other`>",
    "SELECT * FROM ice.crm.orders",
    # Strings, comments and columns with the name of a table.
    "SELECT 'sales.orders', orders /* from orders */ -- sales.orders\n FROM <orders|O> WHERE x = \"orders\"",
    "/* of orders */ SELECT 1 AS orders FROM <orders|O> -- the end",
    # All positions of a table name.
    "SELECT * FROM <orders|O>, <crm.orders|X> c, <customers|C>",
    "SELECT * FROM <orders|O> JOIN <customers|C> USING (id)",
    "SELECT * FROM <orders|O> o CROSS JOIN (<customers|C>)",
    "SELECT a FROM <orders|O> UNION ALL (SELECT b FROM <customers|C>) EXCEPT SELECT c FROM <orders|O>",
    "SELECT (SELECT max(x) FROM <orders|O>) FROM <crm.t|T> WHERE EXISTS (SELECT 1 FROM <customers|C>) "
    "AND i IN (SELECT i FROM <orders|O>)",
    "FROM <orders|O> SELECT id",
    "SELECT * FROM <orders|O> TABLESAMPLE (10 PERCENT)",
    "SELECT * FROM <orders|O> PIVOT (sum(x) FOR y IN (1))",
    # Names that aren't tables.
    "SELECT * FROM VALUES (1), (2) AS orders(a)",
    "SELECT * FROM range(3) orders",
    "SELECT * FROM parquet.`/orders`",
    "SELECT orders.z FROM <customers|C> LATERAL VIEW explode(zs) orders AS z",
    "SELECT * FROM (SELECT 1 AS id) orders, LATERAL (SELECT id FROM <customers|C>)",
    # A WITH definition hides a table only from later definitions and the query.
    "WITH orders AS (SELECT * FROM <orders|O>) SELECT * FROM orders",
    "WITH a AS (SELECT * FROM <Customers|C>), customers AS (SELECT * FROM a) SELECT * FROM CUSTOMERS "
    "UNION SELECT * FROM customers",
    "WITH orders AS (SELECT 1) SELECT * FROM <sales.orders|O> WHERE i IN (SELECT * FROM orders)",
    "SELECT * FROM <orders|O>, (WITH orders AS (SELECT 1) SELECT * FROM orders) x",
    "WITH orders AS (SELECT 1 i), x AS (WITH y AS (SELECT * FROM orders) SELECT * FROM y) SELECT * FROM x",
    "WITH Orders AS (SELECT 1 i), x AS (SELECT * FROM ORDERS) SELECT * FROM x",
    "WITH RECURSIVE orders AS (SELECT 1 i UNION ALL SELECT i + 1 FROM orders) SELECT * FROM orders",
    # With RECURSIVE a definition can refer to itself, but not to later ones.
    "WITH RECURSIVE a AS (SELECT * FROM <orders|O>), orders AS (SELECT 1 i) SELECT * FROM a, orders",
    # Columns qualified with their table's name: the last part stays valid.
    "SELECT orders.id, orders.* FROM <orders|O>",
    "SELECT <sales.orders|orders>.id FROM <orders|O>",
    "SELECT <sales.orders|orders>.* FROM <sales.orders|O>",
    "SELECT <spark_catalog.sales.orders|orders>.s.a FROM <orders|O>",
    "SELECT <sales.orders|orders>.s.a.b FROM <orders|O>",
    "SELECT max(<`sales`.orders|orders>.x[0].y) FROM <orders|O>",
    "SELECT <crm.orders|orders>.id FROM <crm.orders|X>",
    # Without a table of that name, they are a column and its fields.
    "SELECT sales.orders.id FROM <crm.t|T> AS sales",
    "SELECT sales.orders.id FROM <orders|O> AS sales",
    "SELECT 1 FROM <orders|O> WHERE EXISTS (SELECT 1 FROM <crm.t|T> WHERE i = <sales.orders|orders>.i)",
    # Parentheses around a join aren't a query.
    "SELECT * FROM (<orders|O> JOIN <customers|C> "
    "ON <sales.orders|orders>.i = <sales.customers|customers>.i)",
    "SELECT * FROM ((<orders|O> JOIN <crm.t|T> t ON <sales.orders|orders>.i = t.i))",
    "SELECT * FROM ((SELECT <sales.orders|orders>.i FROM <orders|O>) x JOIN <customers|C> "
    "ON <sales.customers|customers>.i = x.i)",
    "SELECT * FROM (<orders|O> JOIN <crm.t|T> t "
    "ON t.i = (SELECT max(i) FROM <customers|C> WHERE j = <sales.orders|orders>.i))",
    # Hints: the last part matches the new name too.
    "SELECT /*+ BROADCAST(<sales.orders|orders>, c), MERGE(orders) */ * FROM <orders|O>, <customers|C> c",
    "SELECT /*+ BROADCAST(sales.orders) */ * FROM <orders|O> AS o",
    "SELECT /*+ BROADCAST(ice.sales.orders.files) */ * FROM <orders|O>",
    "SELECT i FROM ice.sales.orders "
    "WHERE i IN (SELECT /*+ BROADCAST(<sales.orders|orders>) */ i FROM <orders|O>)",
    # Parts that sqlglot would otherwise replace.
    "SELECT nvl(a, 1), 1L, date_sub(d, 1), DATE '2026-01-31', instr(a, 'x') FROM <orders|O>",
    # An older version of a table that didn't move.
    "SELECT * FROM <crm.orders|X> VERSION AS OF 3",
]


def new_text(text: str) -> str:
    return with_names(text, NAMESPACE, lambda name: NEW.get(name.key, name))


def same_query(first: str, second: str) -> bool:
    """Return whether two texts differ only in layout and comments."""
    parsed = [sqlglot.parse_one(text, dialect=Verbatim) for text in (first, second)]
    return parsed[0] == parsed[1]


@pytest.mark.parametrize("text", TEXTS_BEFORE_AND_AFTER)
def test_only_names_are_replaced(text: str) -> None:
    after = CHANGE.sub(lambda change: SHORT.get(change[2], change[2]), text)
    assert same_query(new_text(CHANGE.sub(r"\1", text)), after)


def test_functions_and_literals_are_written_as_before() -> None:
    text = "SELECT nvl(a, 1), 1L, date_sub(d, 1), DATE '2026-01-31', instr(a, 'x') FROM orders, c"
    assert " ".join(new_text(text).split()) == (
        "SELECT nvl(a, 1), 1L, date_sub(d, 1), DATE '2026-01-31', instr(a, 'x') "
        "FROM `main`.`lake`.`orders`, `spark_catalog`.`sales`.`c`"
    )


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("SELECT * FROM", "VIEW_NOT_PARSED"),
        ("TABLE orders", "VIEW_NAMES_TABLE_INDIRECTLY"),
        ("WITH c AS (TABLE orders) SELECT * FROM c", "VIEW_NAMES_TABLE_INDIRECTLY"),
        ("SELECT * FROM STREAM(orders)", "VIEW_NAMES_TABLE_INDIRECTLY"),
        ("", "VIEW_NOT_ONE_QUERY"),
        ("SELECT 1; SELECT 2", "VIEW_NOT_ONE_QUERY"),
        ("MAP a USING 'x' FROM orders", "VIEW_NOT_PARSED"),
        ("SELECT * FROM IDENTIFIER('sales.orders')", "VIEW_NAMES_TABLE_INDIRECTLY"),
        ("SELECT * FROM f(TABLE(orders))", "VIEW_NAMES_TABLE_INDIRECTLY"),
        ("SELECT * FROM orders VERSION AS OF 3", "VIEW_READS_OLD_VERSION"),
        ("SELECT * FROM orders TIMESTAMP AS OF '2026-01-31'", "VIEW_READS_OLD_VERSION"),
        ("SELECT " + "(" * 3000 + "1" + ")" * 3000 + " FROM orders", "VIEW_NOT_PARSED"),
    ],
)
def test_query_that_cannot_be_followed_is_refused(text: str, condition: str) -> None:
    with conditions.raises(condition):
        new_text(text)


@pytest.mark.parametrize("namespace", [("rest",), ("rest", "a", "b")])
def test_name_without_schema_needs_namespace_of_catalog_and_schema(namespace: tuple[str, ...]) -> None:
    with conditions.raises("VIEW_NAMESPACE_AMBIGUOUS", table="z", namespace=".".join(namespace)):
        list_tables("SELECT * FROM y.z JOIN z", namespace)


@dataclass(frozen=True)
class Piece:
    """A part of a query before and after the replacement, computed without a parser."""

    old: str
    new: str


def fixed(text: str) -> st.SearchStrategy[Piece]:
    return st.just(Piece(text, text))


def join(*parts: Piece | str) -> Piece:
    pieces = [Piece(part, part) if isinstance(part, str) else part for part in parts]
    return Piece("".join(piece.old for piece in pieces), "".join(piece.new for piece in pieces))


TABLES = {
    ("spark_catalog", "sales", "orders"): ("main", "lake", "orders"),
    ("spark_catalog", "sales", "customers"): ("main", "lake", "customers"),
    ("spark_catalog", "crm", "orders"): ("main", "crm_lake", "orders"),
    ("spark_catalog", "sales", "other"): ("spark_catalog", "sales", "other"),
    ("ice", "sales", "orders"): ("ice", "sales", "orders"),
}  # fmt: skip
SPACE = st.sampled_from([" ", "\n", " /* sales.orders */ ", " -- FROM orders\n", "\t"])
TEXTS = st.sampled_from(
    ["'orders'", "'it\\'s sales.orders'", '"crm.orders"', "1", "'🚢 `orders`'", "orders", "i"]
)


def quoted(parts: tuple[str, ...]) -> str:
    return ".".join(f"`{part}`" for part in parts)


@st.composite
def table(draw: st.DrawFn, hidden: frozenset[str]) -> tuple[Piece, tuple[str, ...], Piece]:
    """A table reference, its full name, and the reference to its column ``i``."""
    name = draw(st.sampled_from(sorted(TABLES)))
    catalog, schema, last = name
    forms: list[tuple[str, ...]] = [name]
    if catalog == "spark_catalog":
        forms.append((schema, last))
        if schema == "sales" and last not in hidden:
            forms.append((last,))
    form = draw(st.sampled_from(forms))
    written = ".".join(draw(st.sampled_from([part, f"`{part}`", part.upper()])) for part in form)
    new = TABLES[name]
    qualifier = draw(st.sampled_from([name, name[1:], name[2:]]))
    after = written if new == name and len(form) == 3 else quoted(new)
    return Piece(written, after), name, Piece(".".join(qualifier), last)


@st.composite
def query(draw: st.DrawFn, depth: int = 2, hidden: frozenset[str] = frozenset()) -> Piece:
    """A random query, over random tables."""
    kind = draw(
        st.sampled_from(["table", "alias", "union", "in", "with", "derived", "hint"][: 7 if depth else 2])
    )
    space = draw(SPACE)
    match kind:
        case "table":
            source, _, column = draw(table(hidden))
            return join("SELECT ", column, ".i AS a, ", draw(TEXTS), " AS b", space, "FROM ", source, space)
        case "alias":
            source, _, _ = draw(table(hidden))
            alias = draw(st.sampled_from(["orders", "customers", "sales", "x"]))
            return join(
                "SELECT ",
                alias,
                ".i AS a, 2 AS b FROM ",
                source,
                " AS ",
                alias,
                space,
                "WHERE ",
                alias,
                ".j > 0",
            )
        case "hint":
            source, _, column = draw(table(hidden))
            return join("SELECT /*+ BROADCAST(", column, ") */ i AS a, 2 AS b FROM ", source)
        case "union":
            first, second = draw(query(depth - 1, hidden)), draw(query(depth - 1, hidden))
            return join("(", first, ")", space, "UNION ALL (", second, ")")
        case "in":
            source, _, column = draw(table(hidden))
            inner = draw(query(depth - 1, hidden))
            return join(
                "SELECT i AS a, i AS b FROM ", source, " WHERE (", column, ".i, 2) IN", space, "(", inner, ")"
            )
        case "with":
            name = draw(st.sampled_from(["orders", "customers", "other", "x"]))
            defined = draw(query(depth - 1, hidden))
            body = draw(query(depth - 1, hidden | {name}))
            return join(
                "WITH ",
                name,
                " AS (",
                defined,
                ")",
                space,
                "SELECT a, b FROM ",
                name,
                " UNION ALL (",
                body,
                ")",
            )
        case _:
            inner = draw(query(depth - 1, hidden))
            return join("SELECT x.a, 2 AS b FROM (", inner, ") x", space, "WHERE a > 1")


@given(query())
def test_random_query_reads_exactly_the_new_tables(piece: Piece) -> None:
    new = {TableName(old).key: TableName(name) for old, name in TABLES.items()}
    assert same_query(with_names(piece.old, NAMESPACE, lambda name: new[name.key]), piece.new)
