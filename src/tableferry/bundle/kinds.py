"""The kinds of resources, and their types from the package ``databricks-bundles`` where it's installed."""

from __future__ import annotations

import dataclasses
from functools import cache
from importlib import import_module
from importlib.util import find_spec

# As the Databricks CLI 1.22 names them.
KINDS = (
    "alerts",
    "apps",
    "catalogs",
    "cluster_policies",
    "clusters",
    "dashboards",
    "database_catalogs",
    "database_instances",
    "experiments",
    "external_locations",
    "features",
    "genie_spaces",
    "instance_pools",
    "job_runs",
    "jobs",
    "mcp_services",
    "model_provider_services",
    "model_services",
    "model_serving_endpoints",
    "models",
    "pipelines",
    "postgres_branches",
    "postgres_catalogs",
    "postgres_databases",
    "postgres_endpoints",
    "postgres_projects",
    "postgres_roles",
    "postgres_synced_tables",
    "quality_monitors",
    "registered_models",
    "schemas",
    "secret_scopes",
    "secrets",
    "sql_warehouses",
    "synced_database_tables",
    "vector_search_endpoints",
    "vector_search_indexes",
    "volumes",
)

# What a deployed resource has beyond what is written, by kind; the CLI lets one refer to it.
KNOWN_LATER = {
    "jobs": [
        "id",
        "url",
        "job_id",
        "created_time",
        "creator_user_name",
        "effective_budget_policy_id",
        "effective_usage_policy_id",
        "run_as_user_name",
        "trigger_details",
        "trigger_state",
    ],
    "pipelines": [
        "id",
        "url",
        "pipeline_id",
        "cause",
        "cluster_id",
        "creator_user_name",
        "effective_budget_policy_id",
        "effective_publishing_mode",
        "effective_serverless_compute_id",
        "health",
        "last_modified",
        "latest_updates",
        "run_as_user_name",
        "state",
    ],
    "schemas": [
        "id",
        "url",
        "full_name",
        "schema_id",
        "browse_only",
        "catalog_type",
        "created_at",
        "created_by",
        "effective_predictive_optimization_flag",
        "enable_predictive_optimization",
        "metastore_id",
        "owner",
        "storage_location",
        "updated_at",
        "updated_by",
    ],
    "volumes": [
        "id",
        "url",
        "full_name",
        "volume_id",
        "volume_path",
        "access_point",
        "browse_only",
        "created_at",
        "created_by",
        "encryption_details",
        "metastore_id",
        "owner",
        "updated_at",
        "updated_by",
    ],
}


@cache
def types_installed() -> bool:
    """Return whether the package ``databricks-bundles`` is installed."""
    try:
        return find_spec("databricks.bundles.core") is not None
    except ModuleNotFoundError:
        return False


@cache
def type_of(kind: str) -> type | None:
    """Return the type of a kind's resources; None where the package isn't installed or has no such type."""
    if kind not in KINDS or not types_installed():
        return None
    try:
        module = import_module(f"databricks.bundles.{kind}")
    except ModuleNotFoundError:
        return None
    base = import_module("databricks.bundles.core").Resource
    for member in vars(module).values():
        if isinstance(member, type) and issubclass(member, base) and dataclasses.is_dataclass(member):
            return member
    return None
