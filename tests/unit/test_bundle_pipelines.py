"""Pipelines, schemas, volumes and targets."""

from __future__ import annotations

import pytest
from tests.unit.bundle_files import PIPELINE, ROOT, SCHEMA, VOLUME, BundleFiles

ETL = f"{PIPELINE}: resources.pipelines.etl"


@pytest.mark.parametrize(
    ("old", "new", "path", "message"),
    [
        (
            "      catalog: ${var.catalog}\n",
            "",
            "",
            "says no catalog, so that it would publish to the Hive metastore: write 'catalog'",
        ),
        (
            "      schema: ${resources.schemas.shop.name}\n",
            "",
            "",
            "says no schema to publish to: write 'schema'",
        ),
        (
            "      schema: ${resources.schemas.shop.name}\n",
            "      target: ${resources.schemas.shop.name}\n",
            ".target",
            "'target' is the old name of 'schema': write 'schema'",
        ),
        (
            "serverless: true",
            "serverless: true\n      clusters: [{num_workers: 1}]",
            ".clusters",
            "a serverless pipeline takes no clusters: remove them, or 'serverless'",
        ),
        (
            "../src/transformations/**",
            "../src/transformations/**/*.sql",
            ".libraries[0].glob.include",
            "'../src/transformations/**/*.sql' is a pattern that pipelines don't know: "
            "write the path of a file, or that of a folder with /** behind it",
        ),
        (
            "../src/transformations/**",
            "../src/transformations",
            ".libraries[0].glob.include",
            "'../src/transformations' is a folder: write '../src/transformations/**'",
        ),
        (
            "../src/transformations/**",
            "../src/transformations/customers.sql",
            ".libraries[0].glob.include",
            "'../src/transformations/customers.sql' matches no file: correct the path, or add the file",
        ),
        (
            "../src/transformations/**",
            "../../**",
            ".libraries[0].glob.include",
            "'../../**' lies outside of what is synchronised to the workspace: "
            "move it into the bundle's folder",
        ),
        (
            "        - glob:\n            include: ../src/transformations/**",
            "        - glob: {}",
            ".libraries[0].glob",
            "includes nothing: write 'include'",
        ),
        (
            "        - glob:\n            include: ../src/transformations/**",
            "        - file: {path: ../src/notebooks/report.py}",
            ".libraries[0].file.path",
            "'../src/notebooks/report.py' is a notebook, and a file is asked for: remove its first line",
        ),
        (
            "        - glob:\n            include: ../src/transformations/**",
            "        - file: {path: ../src/transformations/*.py}",
            ".libraries[0].file.path",
            "'../src/transformations/*.py' matches no file: correct the pattern",
        ),
        (
            "      libraries:\n        - glob:\n            include: ../src/transformations/**\n",
            "",
            "",
            "loads no source file: name some under 'libraries'",
        ),
        (
            "root_path: ../src",
            "root_path: ../source",
            ".root_path",
            f"there is no folder '../source': "
            f"correct the path, which is relative to the folder of {PIPELINE}",
        ),
        (
            "serverless: true",
            "serverless: true\n      notifications: [{email_recipients: [''], alerts: [on-update-failure]}]",
            ".notifications[0].email_recipients[0]",
            "is an empty e-mail address, which is refused when it's deployed: "
            "write an address, or leave it out",
        ),
    ],
)
def test_what_is_wrong_with_a_pipeline(
    shop: BundleFiles, old: str, new: str, path: str, message: str
) -> None:
    shop.replace(PIPELINE, old, new)
    assert shop.messages() == [f"{ETL}{path}: {message}"]


@pytest.mark.parametrize(
    "library",
    [
        "glob: {include: ../src/transformations/orders.sql}",
        "glob: {include: /Workspace/Shared/etl/**}",
        "file: {path: ../src/transformations/*.sql}",
        "notebook: {path: ../src/notebooks/report.py}",
    ],
)
def test_what_a_pipeline_may_load(shop: BundleFiles, library: str) -> None:
    shop.replace(PIPELINE, "glob:\n            include: ../src/transformations/**", library)
    assert shop.messages() == []


@pytest.mark.parametrize(
    ("file", "old", "new", "path", "message"),
    [
        (
            VOLUME,
            "READ_VOLUME",
            "READ VOLUME",
            "volumes.state.grants[0].privileges[0]",
            "'READ VOLUME' can't be granted on volumes: did you mean 'READ_VOLUME'?",
        ),
        (
            VOLUME,
            "READ_VOLUME",
            "SELECT",
            "volumes.state.grants[0].privileges[0]",
            "'SELECT' can't be granted on volumes: "
            "write one of 'ALL_PRIVILEGES', 'APPLY_TAG', 'MANAGE', 'READ_VOLUME', 'WRITE_VOLUME'",
        ),
        (
            VOLUME,
            "READ_VOLUME",
            "WRITE_VOLUME",
            "volumes.state.grants[0].privileges[1]",
            "grants 'WRITE_VOLUME' twice: keep one",
        ),
        (
            SCHEMA,
            "[USE_SCHEMA, SELECT]",
            "[]",
            "schemas.shop.grants[0]",
            "grants nothing: write 'privileges'",
        ),
        (
            SCHEMA,
            "principal: analysts",
            "principal: ''",
            "schemas.shop.grants[0]",
            "grants to nobody: write 'principal'",
        ),
        (
            VOLUME,
            "MANAGED",
            "EXTERNAL",
            "volumes.state",
            "an external volume lies nowhere: write 'storage_location'",
        ),
        (
            VOLUME,
            "volume_type: MANAGED",
            "volume_type: MANAGED\n      storage_location: s3://x/y",
            "volumes.state.storage_location",
            "a managed volume takes no place of its own: remove it, or write 'volume_type: EXTERNAL'",
        ),
        (
            VOLUME,
            "volume_type: MANAGED",
            "volume_type: MANGED",
            "volumes.state.volume_type",
            "'MANGED' isn't one of 'MANAGED', 'EXTERNAL': did you mean 'MANAGED'?",
        ),
        (
            VOLUME,
            "name: state",
            "name: my state",
            "volumes.state.name",
            "'my state' can't be a name in Unity Catalog: write one without dots, spaces or slashes",
        ),
    ],
)
def test_what_is_wrong_with_a_schema_or_a_volume(
    shop: BundleFiles, file: str, old: str, new: str, path: str, message: str
) -> None:
    shop.replace(file, old, new)
    assert shop.messages() == [f"{file}: resources.{path}: {message}"]


@pytest.mark.parametrize(
    ("old", "new", "path", "message"),
    [
        (
            "    default: true\n",
            "",
            "targets",
            "no target is the default, so that every command needs --target ('dev', 'prod'): "
            "write 'default: true' in one",
        ),
        (
            "    mode: production\n",
            "    mode: production\n    default: true\n",
            "targets.prod.default",
            "is a second default: databricks.yml: targets.dev is one too: "
            "write 'default: true' in one target only",
        ),
        (
            "mode: development",
            "mode: staging",
            "targets.dev.mode",
            "'staging' isn't one of 'development', 'production': write one of them",
        ),
        (
            "    workspace:\n      root_path: /Workspace/Shared/.bundle/${bundle.name}/${bundle.target}\n",
            "",
            "targets.prod",
            "mode 'production' without workspace.root_path deploys one copy for every person who deploys: "
            "set root_path, such as /Workspace/Shared/.bundle/${bundle.name}/${bundle.target}",
        ),
        (
            "    default: true\n",
            "    default: true\n    workspace: {host: 'https://example.com'}\n",
            "targets.dev.workspace.host",
            "a host beats DATABRICKS_HOST and the profile, so that everybody's deployment goes there: "
            "remove it, and choose the workspace by profile or DATABRICKS_HOST",
        ),
        (
            "    default: true\n",
            "    default: true\n    workspace: {root_path: /Workspace/Shared/shop}\n",
            "targets.dev.workspace.root_path",
            "root_path is one for all developers, who would overwrite each other's copies: "
            "put ${workspace.current_user.short_name} into it",
        ),
        (
            "    default: true\n",
            "    default: true\n    presets: {name_prefix: test_}\n",
            "targets.dev.presets.name_prefix",
            "name_prefix is the same for all developers, who would overwrite each other's copies: "
            "put ${workspace.current_user.short_name} into it",
        ),
        (
            "    default: true\n",
            "    default: true\n    presets: {trigger_pause_status: UNPAUSED}\n",
            "targets.dev.presets.trigger_pause_status",
            "would start the triggers of every developer's copy: remove it from this target",
        ),
        (
            "    run_as:\n      service_principal_name",
            "    run_as:\n      service_principal",
            "targets.prod.run_as.service_principal",
            "unknown field 'service_principal': did you mean 'service_principal_name'?",
        ),
        (
            "level: CAN_MANAGE",
            "level: IS_OWNER",
            "targets.prod.permissions[0].level",
            "'IS_OWNER' isn't one of 'CAN_MANAGE', 'CAN_VIEW', 'CAN_RUN': write one of them",
        ),
        ("  name: shop\n", "  uuid: shop\n", "bundle", "lacks 'name': write it"),
        ("  name: shop\n", "  nmae: shop\n", "bundle.nmae", "unknown field 'nmae': did you mean 'name'?"),
    ],
)
def test_what_is_wrong_with_a_target(shop: BundleFiles, old: str, new: str, path: str, message: str) -> None:
    shop.replace(ROOT, old, new)
    assert shop.messages() == [f"{ROOT}: {path}: {message}"]


def test_development_paths_of_ones_own(shop: BundleFiles) -> None:
    mine = "'/x/${workspace.current_user.userName}'"
    paths = f"root_path: ~/.bundle/x, file_path: '${{workspace.root_path}}/f', state_path: {mine}"
    shop.replace(ROOT, "    default: true\n", f"    default: true\n    workspace: {{{paths}}}\n")
    assert shop.messages() == []


def test_a_pipeline_in_development_in_production(shop: BundleFiles) -> None:
    shop.replace(PIPELINE, "serverless: true", "serverless: true\n      development: true")
    assert shop.messages() == [
        f"{ETL}.development: a pipeline in development mode can't be deployed to a target of mode "
        "'production' "
        "(in target 'prod'): remove it: the target's mode sets it"
    ]


def test_a_target_that_there_is_not(shop: BundleFiles) -> None:
    assert shop.messages("prd") == [f"{ROOT}: targets: there is no target 'prd': did you mean 'prod'?"]


def test_one_target_needs_no_default_and_none_is_called_default(shop: BundleFiles) -> None:
    shop.replace(ROOT, "    default: true\n", "")
    text = (shop.root / ROOT).read_text("utf-8")
    shop.write(ROOT, text[: text.index("  prod:\n")])
    assert shop.messages() == []
    shop.write(ROOT, text[: text.index("targets:\n")])
    assert shop.messages() == [
        f"{ROOT}: variables.catalog: has no value in target 'default': "
        "set it in targets.default.variables, or give it a default"
    ]
