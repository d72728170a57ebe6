"""A view's text gets the new names of its tables, and keeps every other character."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import conditions

from tableferry.fleet.view_moves.references import Span, parse
from tableferry.fleet.view_moves.rewriting import rewritten
from tableferry.fleet.view_moves.spark_parser import demand_same_tables
from tableferry.spark.tables import TableName

NAMESPACE = ("spark_catalog", "sales")
MOVED = ("orders", "customers", "öre", "a.b", "c`d")
NEW = {f"sales.{table}": TableName(("main", "lake", table)) for table in MOVED}
SHORT = {
    "O": "`main`.`lake`.`orders`",
    "C": "`main`.`lake`.`customers`",
    "X": "`spark_catalog`.`crm`.`orders`",
    "T": "`spark_catalog`.`crm`.`t`",
    "I": "`ice`.`sales`.`orders`",
    "I, O": "`ice`.`sales`.`orders`, `main`.`lake`.`orders`",
}
CHANGE = re.compile(r"<([^<>|]*)\|([^<>|]*)>")
# What becomes of a part of a text is written as <old|new>, with the new names in short.
TEXTS_BEFORE_AND_AFTER = [
    "SELECT id FROM <orders|O>",
    "SELECT id FROM <sales.orders|O>",
    "SELECT id FROM <spark_catalog.sales.orders|O> o",
    "SELECT id FROM <SALES . Orders|O> AS o",
    "SELECT id FROM <`sales`.`orders`|O>",
    # One part of a name, with a dot or a backtick in it.
    "SELECT `a.b`.id FROM <`a.b`|`main`.`lake`.`a.b`>",
    "SELECT id FROM <sales.`c``d`|`main`.`lake`.`c``d`>",
    "SELECT id FROM <`sales.orders`|`spark_catalog`.`sales`.`sales.orders`>",
    "SELECT '🚢', id FROM <öre|`main`.`lake`.`öre`>",
    # What didn't move is written in full too, for the new view is in another schema.
    "SELECT * FROM <crm.orders|X>",
    "SELECT * FROM <other|`spark_catalog`.`sales`.`other`>",
    "SELECT * FROM <ice.crm.orders|`ice`.`crm`.`orders`>",
    # Strings, comments and columns that are called as a table is.
    "SELECT 'sales.orders', orders /* from orders */ -- sales.orders\n FROM <orders|O> WHERE x = \"orders\"",
    # Spark keeps no comment before the first word or behind the last.
    "</* of orders */ |>SELECT 1 AS orders FROM <orders|O>< -- the end|>",
    # All places of a table.
    "SELECT * FROM <orders|O>, <crm.orders|X> c, <customers|C>",
    "SELECT * FROM <orders|O> JOIN <customers|C> USING (id)",
    "SELECT * FROM <orders|O> o CROSS JOIN (<customers|C>)",
    "SELECT a FROM <orders|O> UNION ALL (SELECT b FROM <customers|C>) EXCEPT SELECT c FROM <orders|O>",
    "SELECT (SELECT max(x) FROM <orders|O>) FROM <crm.t|T> WHERE EXISTS (SELECT 1 FROM <customers|C>) "
    "AND i IN (SELECT i FROM <orders|O>)",
    "FROM <orders|O> SELECT id",
    "SELECT * FROM <orders|O> TABLESAMPLE (10 PERCENT)",
    "SELECT * FROM <orders|O> PIVOT (sum(x) FOR y IN (1))",
    # What is no table.
    "SELECT * FROM VALUES (1), (2) AS orders(a)",
    "SELECT * FROM range(3) orders",
    "SELECT * FROM parquet.`/orders`",
    "SELECT orders.z FROM <customers|C> LATERAL VIEW explode(zs) orders AS z",
    "SELECT * FROM (SELECT 1 AS id) orders, LATERAL (SELECT id FROM <customers|C>)",
    # A WITH hides a table where it's known: not from itself, and not from those before it.
    "WITH orders AS (SELECT * FROM <orders|O>) SELECT * FROM orders",
    "WITH a AS (SELECT * FROM <Customers|C>), customers AS (SELECT * FROM a) SELECT * FROM CUSTOMERS "
    "UNION SELECT * FROM customers",
    "WITH orders AS (SELECT 1) SELECT * FROM <sales.orders|O> WHERE i IN (SELECT * FROM orders)",
    "SELECT * FROM <orders|O>, (WITH orders AS (SELECT 1) SELECT * FROM orders) x",
    "WITH orders AS (SELECT 1 i), x AS (WITH y AS (SELECT * FROM orders) SELECT * FROM y) SELECT * FROM x",
    "WITH Orders AS (SELECT 1 i), x AS (SELECT * FROM ORDERS) SELECT * FROM x",
    "WITH RECURSIVE orders AS (SELECT 1 i UNION ALL SELECT i + 1 FROM orders) SELECT * FROM orders",
    # RECURSIVE lets a definition know itself, and still not those behind it.
    "WITH RECURSIVE a AS (SELECT * FROM <orders|O>), orders AS (SELECT 1 i) SELECT * FROM a, orders",
    # Columns with their table's name: the last word alone stays right.
    "SELECT orders.id, orders.* FROM <orders|O>",
    "SELECT <sales.orders|O>.id FROM <orders|O>",
    "SELECT <sales.orders|O>.* FROM <sales.orders|O>",
    "SELECT <spark_catalog.sales.orders|O>.s.a FROM <orders|O>",
    "SELECT <sales.orders|O>.s.a.b FROM <orders|O>",
    "SELECT max(<`sales`.orders|O>.x[0].y) FROM <orders|O>",
    "SELECT crm.orders.id FROM <crm.orders|X>",
    # Where no table has that name, they are a column and its fields.
    "SELECT sales.orders.id FROM <crm.t|T> AS sales",
    "SELECT sales.orders.id FROM <orders|O> AS sales",
    "SELECT 1 FROM <orders|O> WHERE EXISTS (SELECT 1 FROM <crm.t|T> WHERE i = <sales.orders|O>.i)",
    "SELECT 1 FROM <orders|O> WHERE EXISTS (SELECT 1 FROM <crm.t|T> AS sales WHERE i = sales.orders.i)",
    "SELECT * FROM <orders|O> JOIN (SELECT sales.orders.i FROM <crm.t|T>) ON <sales.orders|O>.i = 1",
    # Parentheses around a join are no query.
    "SELECT * FROM (<orders|O> JOIN <customers|C> ON <sales.orders|O>.i = <sales.customers|C>.i)",
    "SELECT * FROM ((<orders|O> JOIN <crm.t|T> t ON <sales.orders|O>.i = t.i))",
    "SELECT * FROM ((SELECT <sales.orders|O>.i FROM <orders|O>) x JOIN <customers|C> "
    "ON <sales.customers|C>.i = x.i)",
    "SELECT * FROM <orders|O> JOIN ((SELECT sales.orders.i FROM <crm.t|T>)) ON <sales.orders|O>.i = 1",
    "SELECT * FROM (<orders|O> JOIN <crm.t|T> t "
    "ON t.i = (SELECT max(i) FROM <customers|C> WHERE j = <sales.orders|O>.i))",
    "WITH c AS (SELECT sales.orders.id FROM <crm.t|T>) SELECT * FROM <orders|O>, c",
    # Hints: the last word alone stays right here too.
    "SELECT /*+ BROADCAST(<sales.orders|O>, c), MERGE(orders) */ * FROM <orders|O>, <customers|C> c",
    "SELECT /*+ BROADCAST(sales.orders) */ * FROM <orders|O> AS o",
    "SELECT /*+ BROADCAST(ice.sales.orders.files) */ * FROM <orders|O>",
    "SELECT /*+ REPARTITION(3) */ /*+ MERGE(c),\n BROADCAST(<sales.orders|O>) */ * FROM <orders|O>",
    # They mean tables of their own SELECT, and all of these that are called so.
    "SELECT i FROM <ice.sales.orders|I> "
    "WHERE i IN (SELECT /*+ BROADCAST(<sales.orders|O>) */ i FROM <orders|O>)",
    "SELECT /*+ BROADCAST(sales.orders) */ i FROM <ice.sales.orders|I> WHERE i IN (SELECT i FROM <orders|O>)",
    "FROM <crm.orders|X> "
    "SELECT /*+ MERGE(crm.orders) */ (SELECT /*+ MERGE(<sales.orders|O>) */ 1 FROM <orders|O>)",
    "SELECT /*+ BROADCAST(<sales.orders|I, O>) */ * FROM <ice.sales.orders|I>, <orders|O>",
    # An older version of what didn't move.
    "SELECT * FROM <crm.orders|X> VERSION AS OF 3",
]


def new_text(text: str) -> str:
    return rewritten(parse(text, NAMESPACE), lambda name: NEW.get(name.key, name))


@pytest.mark.parametrize("text", TEXTS_BEFORE_AND_AFTER)
def test_names_are_replaced_and_nothing_else(text: str) -> None:
    after = CHANGE.sub(lambda change: SHORT.get(change[2], change[2]), text)
    assert new_text(CHANGE.sub(r"\1", text)) == after


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("SELECT * FROM", "VIEW_NOT_PARSED"),
        ("TABLE orders", "VIEW_NAMES_TABLE_BY_KEYWORD"),
        ("WITH c AS (TABLE orders) SELECT * FROM c", "VIEW_NAMES_TABLE_BY_KEYWORD"),
        ("SELECT * FROM STREAM(orders)", "VIEW_NAMES_TABLE_BY_FUNCTION"),
        ("", "VIEW_NOT_ONE_QUERY"),
        ("SELECT 1; SELECT 2", "VIEW_NOT_ONE_QUERY"),
        ("MAP a USING 'x' FROM orders", "VIEW_NOT_PARSED"),
        ("SELECT * FROM IDENTIFIER('sales.orders')", "VIEW_NAMES_TABLE_BY_FUNCTION"),
        ("SELECT * FROM f(TABLE(orders))", "VIEW_NAMES_TABLE_BY_KEYWORD"),
        ("SELECT * FROM orders VERSION AS OF 3", "VIEW_READS_OLD_VERSION"),
        ("SELECT * FROM sales/* of */.orders", "VIEW_TABLE_NAME_NOT_REPLACEABLE"),
        ("SELECT * FROM orders WHERE " + " OR ".join(["i = 1"] * 2000), "VIEW_NESTED_TOO_DEEPLY"),
    ],
)
def test_what_cant_be_followed_is_refused(text: str, condition: str) -> None:
    with conditions.raises(condition):
        new_text(text)


def test_a_text_that_would_mean_something_else_is_refused() -> None:
    view = parse("SELECT orders FROM orders", NAMESPACE)
    [reference] = view.references
    # As if the parser had said that the table is where the column is.
    wrong = replace(view, references=(replace(reference, span=Span(7, 13)),))
    with conditions.raises("VIEW_MEANING_CHANGES"):
        rewritten(wrong, lambda name: NEW[name.key])


def explained(*relations: str) -> str:
    lines = "\n".join(f"   +- 'UnresolvedRelation {relation}, [], false" for relation in relations)
    analyzed = "== Analyzed Logical Plan ==\nUnresolvedRelation [no], []"
    return f"== Parsed Logical Plan ==\n'Project [*]\n{lines}\n\n{analyzed}"


@pytest.mark.parametrize("namespace", [("rest",), ("rest", "a", "b")])
def test_a_bare_name_needs_a_catalog_and_a_schema(namespace: tuple[str, ...]) -> None:
    with conditions.raises("VIEW_NAMESPACE_AMBIGUOUS", table="z", namespace=".".join(namespace)):
        parse("SELECT * FROM y.z JOIN z", namespace)


def test_sparks_parser_has_to_find_the_same_tables() -> None:
    view = parse("WITH c AS (SELECT * FROM a.b) SELECT * FROM c, `x.y`", NAMESPACE)
    demand_same_tables(view, explained("[a, b]", "[c]", "[x.y]"))
    with conditions.raises("VIEW_READ_DIFFERENTLY_BY_SPARK", tables="[z]"):
        demand_same_tables(view, explained("[a, b]", "[c]", "[x.y]", "[z]"))
    with conditions.raises("VIEW_READ_DIFFERENTLY_BY_SPARK", tables="[x.y]"):
        demand_same_tables(view, explained("[a, b]", "[c]"))
    named_by_text = explained("[a, b]", "[c]", "[x.y]").replace("Project", "PlanWithUnresolvedIdentifier")
    with conditions.raises("VIEW_NAMES_TABLE_BY_FUNCTION", function="IDENTIFIER"):
        demand_same_tables(view, named_by_text)
    with conditions.raises("VIEW_TABLES_NOT_REPORTED"):
        demand_same_tables(view, "'Project [*]")


@dataclass(frozen=True)
class Piece:
    """A part of a query as it's written before and after, known without a parser."""

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
    """A table as it's written, its name in full, and the way to write its column ``i``."""
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
    # Of one word it stays; and of a table that stays, too.
    after = ".".join(qualifier) if len(qualifier) == 1 or new == name else quoted(new)
    return Piece(written, quoted(new)), name, Piece(".".join(qualifier), after)


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
def test_a_random_view_names_exactly_the_new_tables(piece: Piece) -> None:
    new = {TableName(old).key: TableName(name) for old, name in TABLES.items()}
    text = rewritten(parse(piece.old, NAMESPACE), lambda name: new[name.key])
    # A comment behind the last word goes.
    assert text == piece.new[: len(text)]
    assert piece.new[len(text) :].strip() in ("", "/* sales.orders */", "-- FROM orders")
