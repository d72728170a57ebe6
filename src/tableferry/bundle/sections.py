"""The shape of databricks.yml outside of its resources, as typed dictionaries."""

from __future__ import annotations

from typing import Any, Literal, Required, TypedDict


class Git(TypedDict, total=False):
    """``bundle.git``."""

    branch: str
    origin_url: str


class Lock(TypedDict, total=False):
    """``bundle.deployment.lock``."""

    enabled: bool
    force: bool


class Deployment(TypedDict, total=False):
    """``bundle.deployment``."""

    fail_on_active_runs: bool
    lock: Lock


class Bundle(TypedDict, total=False):
    """``bundle``."""

    name: Required[str]
    uuid: str
    databricks_cli_version: str
    engine: Literal["direct", "terraform"]
    cluster_id: str
    compute_id: str
    git: Git
    deployment: Deployment


class Workspace(TypedDict, total=False):
    """``workspace``."""

    host: str
    profile: str
    auth_type: str
    client_id: str
    account_id: str
    workspace_id: str
    google_service_account: str
    azure_workspace_resource_id: str
    azure_use_msi: bool
    azure_client_id: str
    azure_tenant_id: str
    azure_environment: str
    azure_login_app_id: str
    experimental_is_unified_host: bool
    root_path: str
    file_path: str
    resource_path: str
    artifact_path: str
    state_path: str


class Lookup(TypedDict, total=False):
    """``variables.<name>.lookup``: one kind of thing, and its name."""

    alert: str
    cluster: str
    cluster_policy: str
    dashboard: str
    instance_pool: str
    job: str
    metastore: str
    notification_destination: str
    pipeline: str
    query: str
    service_principal: str
    warehouse: str


class Variable(TypedDict, total=False):
    """``variables.<name>``."""

    type: Literal["complex"]
    default: Any
    description: str
    lookup: Lookup


class ArtifactFile(TypedDict, total=False):
    """``artifacts.<name>.files[]``."""

    source: Required[str]


class Artifact(TypedDict, total=False):
    """``artifacts.<name>``."""

    type: Literal["whl", "jar"]
    path: str
    build: str
    executable: Literal["bash", "sh", "cmd"]
    files: list[ArtifactFile]
    dynamic_version: bool


class Presets(TypedDict, total=False):
    """``presets``."""

    name_prefix: str
    pipelines_development: bool
    trigger_pause_status: Literal["PAUSED", "UNPAUSED"]
    jobs_max_concurrent_runs: int
    source_linked_deployment: bool
    artifacts_dynamic_version: bool
    tags: dict[str, str]


class Sync(TypedDict, total=False):
    """``sync``."""

    paths: list[str]
    include: list[str]
    exclude: list[str]


class RunAs(TypedDict, total=False):
    """``run_as``."""

    user_name: str
    service_principal_name: str
    group_name: str


class Permission(TypedDict, total=False):
    """``permissions[]``."""

    level: Required[Literal["CAN_MANAGE", "CAN_VIEW", "CAN_RUN"]]
    user_name: str
    service_principal_name: str
    group_name: str


class Target(TypedDict, total=False):
    """``targets.<name>``; its resources are checked as a part of the whole."""

    default: bool
    mode: Literal["development", "production"]
    presets: Presets
    cluster_id: str
    compute_id: str
    bundle: dict[str, Any]
    workspace: Workspace
    artifacts: dict[str, Artifact]
    resources: dict[str, Any]
    variables: dict[str, Any]
    git: Git
    run_as: RunAs
    sync: Sync
    permissions: list[Permission]


class Script(TypedDict, total=False):
    """``scripts.<name>``."""

    content: Required[str]
    env: dict[str, str]


class Python(TypedDict, total=False):
    """``python``."""

    venv_path: str
    resources: list[str]
    mutators: list[str]


class Root(TypedDict, total=False):
    """All of databricks.yml and of what it includes."""

    bundle: Required[Bundle]
    include: list[str]
    workspace: Workspace
    artifacts: dict[str, Artifact]
    variables: dict[str, Variable]
    resources: dict[str, Any]
    targets: dict[str, Target]
    sync: Sync
    run_as: RunAs
    presets: Presets
    permissions: list[Permission]
    experimental: dict[str, Any]
    scripts: dict[str, Script]
    python: Python


# What one may refer to and not write: the Databricks CLI finds it out.


class FoundGit(Git, total=False):
    """``bundle.git`` in a deployment."""

    commit: str
    actual_branch: str
    bundle_root_path: str


class FoundBundle(Bundle, total=False):
    """``bundle`` in a deployment."""

    target: str
    mode: str
    environment: str
    git: FoundGit  # type: ignore[misc]


class PersonalName(TypedDict, total=False):
    """``workspace.current_user.name``."""

    givenName: str
    familyName: str


class CurrentUser(TypedDict, total=False):
    """``workspace.current_user``."""

    userName: str
    short_name: str
    domain_friendly_name: str
    id: str
    displayName: str
    active: bool
    name: PersonalName


class FoundWorkspace(Workspace, total=False):
    """``workspace`` in a deployment."""

    current_user: CurrentUser
