"""Checks of a workspace: login, packages, grants, information_schema, tags and lineage."""

from __future__ import annotations

import os
from importlib.util import find_spec
from urllib.parse import quote as url_quote

from tableferry import workspace
from tableferry.doctor.check import (
    EVERY_ROUTE,
    Check,
    Observation,
    Place,
    Route,
    Source,
    failure,
    not_applicable,
    success,
)
from tableferry.doctor.environment import Environment
from tableferry.errors import first_line, is_sparks
from tableferry.spark.quoting import literal, quote
from tableferry.spark.tables import DEFAULT_CATALOG, TableName

try:
    from tableferry.access import lineage, tags
except ModuleNotFoundError as error:
    # Without pyspark there is no session, so the checks that use these modules don't apply.
    if (error.name or "").partition(".")[0] != "pyspark":
        raise

_PERMISSIONS = "/api/2.1/unity-catalog/permissions/table/"
_WITHOUT_CATALOG = (DEFAULT_CATALOG, "hive_metastore")


def needs_unity_catalog(env: Environment) -> str:
    """Return the reason why a check of Unity Catalog doesn't apply; empty if it applies."""
    if not env.on_databricks:
        return "this session isn't one of Databricks"
    if _catalog(env) in _WITHOUT_CATALOG:
        return "the scratch tables aren't in Unity Catalog: pass --catalog"
    return ""


def full_name(env: Environment, table: TableName) -> str:
    """Return the name of a scratch table with its catalog, as the REST API names it."""
    return ".".join(table.parts if len(table.parts) == 3 else (_catalog(env), *table.parts))


def _catalog(env: Environment) -> str:
    return env.options.catalog or env.session().catalog.currentCatalog()


def _login(env: Environment) -> Observation:
    if not (os.environ.get(workspace.RUNTIME_VARIABLE) or workspace.configured(os.environ)):
        return not_applicable("no workspace is configured")
    with workspace.request("the identity of this process can't be read") as client:
        identity = client.current_user.me()
    if not identity.user_name:
        return failure("the workspace returns no identity")
    return success("the workspace accepts the login of this process")


def _dependencies(env: Environment) -> Observation:
    if not os.environ.get(workspace.RUNTIME_VARIABLE):
        return not_applicable("this isn't a job of a workspace")
    wanted = ["databricks.sdk", *(("alembic", "sqlalchemy") if env.options.store else ())]
    missing = [name for name in wanted if not _is_installed(name)]
    if missing:
        return failure(f"not installed: {', '.join(missing)}")
    return success(f"installed: {', '.join(wanted)}")


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _grants(env: Environment) -> Observation:
    if reason := needs_unity_catalog(env):
        return not_applicable(reason)
    spark, table = env.session(), env.scratch_table("granted")
    spark.sql(f"CREATE TABLE {table.sql} (id BIGINT) USING delta")
    path = _PERMISSIONS + url_quote(full_name(env, table), safe="")
    with workspace.request("grants on a scratch table can't be changed") as client:
        me = client.current_user.me().user_name
        workspace.patch_json(client, path, {"changes": [{"principal": me, "add": ["SELECT"]}]})
        listed = workspace.get_json(client, path, {}).get("privilege_assignments", ())
    privileges = [name for grant in listed if grant["principal"] == me for name in grant["privileges"]]
    if "SELECT" not in privileges:
        return failure(f"the privileges are {privileges} after SELECT was granted")
    return success("SELECT was granted on a scratch table, and listed")


def _information_schema(env: Environment) -> Observation:
    if reason := needs_unity_catalog(env):
        return not_applicable(reason)
    spark, table = env.session(), env.scratch_table("listed")
    spark.sql(f"CREATE TABLE {table.sql} (id BIGINT) USING delta")
    catalog, schema, name = full_name(env, table).split(".")
    rows = spark.sql(
        f"SELECT table_name FROM {quote(catalog)}.information_schema.tables "
        f"WHERE table_schema = {literal(schema)} AND table_name = {literal(name)}"
    ).collect()
    if [row["table_name"] for row in rows] != [name]:
        return failure("information_schema.tables doesn't list a new table")
    return success("information_schema.tables lists a new table")


def _tags(env: Environment) -> Observation:
    if reason := needs_unity_catalog(env):
        return not_applicable(reason)
    spark, table = env.session(), env.scratch_table("tagged")
    spark.sql(f"CREATE TABLE {table.sql} (id BIGINT) USING delta")
    spark.sql(tags.statement(table, "", {"tableferry_doctor": "yes"}))
    named = TableName(tuple(full_name(env, table).split(".")))
    found = [tuple(row) for row in spark.sql(tags.query(named)).collect()]
    if ("", "tableferry_doctor", "yes") not in found:
        return failure(f"information_schema returns the tags {found} after one was set")
    return success("a tag was set, and read from information_schema")


def _lineage(env: Environment) -> Observation:
    if reason := needs_unity_catalog(env):
        return not_applicable(reason)
    name = literal(f"none.none.{env.scratch_name}")
    try:
        env.session().sql(lineage.READERS_QUERY.format(table=name, days=1)).collect()
    except Exception as error:
        if not is_sparks(error):
            raise
        return failure(f"system.access.table_lineage can't be read ({first_line(error)})")
    return success("system.access.table_lineage can be read")


UNITY_CHECKS = (
    Check(
        name="workspace-login",
        place=Place.WORKSPACE,
        routes=EVERY_ROUTE,
        proves="The workspace's API accepts the login of this process, in a job, in CI or on a laptop.",
        remedy="Log in (`databricks auth login`), or configure OIDC for CI.",
        observe=_login,
        sources=(Source("Log in from CI", "https://docs.databricks.com/dev-tools/auth/provider-github"),),
    ),
    Check(
        name="dependencies",
        place=Place.WORKSPACE,
        routes=EVERY_ROUTE,
        proves="The job's lines of dependencies install the package with its extras.",
        remedy="Write the line as pip reads it, such as tableferry[databricks,fleet]==VERSION.",
        observe=_dependencies,
        sources=(
            Source(
                "Serverless environment dependencies",
                "https://docs.databricks.com/api/workspace/jobs/create",
            ),
            Source(
                "Python dependencies of pipelines",
                "https://learn.microsoft.com/en-us/azure/databricks/ldp/developer/external-dependencies",
            ),
            Source("Cluster libraries", "https://docs.databricks.com/aws/en/libraries/package-repositories"),
        ),
    ),
    Check(
        name="grants",
        place=Place.WORKSPACE,
        routes=(Route.FLEET, Route.PIPELINES),
        proves="Grants on an own table can be changed and listed through the workspace's API.",
        remedy="Let an owner of the schema run the migration, or grant MANAGE on it.",
        observe=_grants,
    ),
    Check(
        name="information-schema",
        place=Place.WORKSPACE,
        routes=(Route.FLEET, Route.PIPELINES),
        proves="information_schema of the catalog lists new tables.",
        remedy="Grant USE CATALOG on the catalog, and SELECT on its information_schema.",
        observe=_information_schema,
        sources=(
            Source(
                "TABLE_TAGS",
                "https://docs.databricks.com/sql/language-manual/information-schema/table_tags.html",
            ),
        ),
    ),
    Check(
        name="tags",
        place=Place.WORKSPACE,
        routes=(Route.FLEET, Route.PIPELINES),
        proves="Tags can be set on a table, and read from information_schema.",
        remedy="Grant APPLY TAG on the schema, and SELECT on the tags' tables in information_schema.",
        observe=_tags,
        sources=(
            Source(
                "TABLE_TAGS",
                "https://docs.databricks.com/sql/language-manual/information-schema/table_tags.html",
            ),
            Source(
                "ALTER TABLE",
                "https://docs.databricks.com/aws/en/sql/language-manual/sql-ref-syntax-ddl-alter-table",
            ),
        ),
    ),
    Check(
        name="lineage",
        place=Place.WORKSPACE,
        routes=(Route.FLEET,),
        proves="The lineage of tables can be read, from which a fleet finds the readers to notify.",
        remedy="Grant SELECT on system.access.table_lineage, or list the readers in a users file.",
        observe=_lineage,
        sources=(
            Source(
                "Lineage system tables",
                "https://docs.databricks.com/aws/en/admin/system-tables/lineage",
            ),
        ),
    ),
)
