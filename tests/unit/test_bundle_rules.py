"""One bundle for each thing that is wrong, and those that look odd and aren't wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.bundle_files import JOB, MODULE, PIPELINE, PROJECT, ROOT, SCHEMA, BundleFiles

from tableferry import bundle
from tableferry.bundle import Rule

NIGHTLY = "resources.jobs.nightly"
ETL = "resources.pipelines.etl"
FIRST = "      tasks:\n        - task_key: refresh\n"
LAST = "        - task_key: totals\n"
FOR_EACH_TASK = """\
        - task_key: each
          for_each_task:
            inputs: "[1, 2]"
            task:
              task_key: inner
              notebook_task: {notebook_path: ../src/notebooks/report.py}
"""
PIPELINE_TASK = "          pipeline_task:\n            pipeline_id: ${resources.pipelines.etl.id}\n"
CLUSTERS = """\
      job_clusters:
        - job_cluster_key: small
          new_cluster: ${var.cluster}
"""
CLUSTER = "          job_cluster_key: small\n"
TWICE = "is there twice, and the two become one: give each a key of its own"
NO_TYPE = "has no type: give it one, such as notebook_task or python_wheel_task"
UNDEFINED = "which the job doesn't define"
NO_SOURCE = "matches no source file: correct it, or add one"
NO_WHEEL = "isn't there, and no artifact builds it: correct or build it"
IN_FILES = "${workspace.file_path}/libs/shop-1-py3-none-any.whl[all]"

SPOILED = [
    (
        Rule.UNKNOWN_DEPENDS_ON,
        (JOB, "    - task_key: refresh\n          env", "    - task_key: refesh\n          env"),
        f"{JOB}:18: {NIGHTLY}: task 'check' waits for 'refesh', which the job doesn't have: did you mean",
    ),
    (
        Rule.CIRCULAR_DEPENDS_ON,
        (JOB, FIRST, f"{FIRST}          depends_on: [{{task_key: check}}]\n"),
        f"{JOB}:13: {NIGHTLY}: tasks wait for each other (refresh → check → refresh): take one",
    ),
    (
        Rule.DUPLICATE_TASK_KEY,
        (JOB, "- task_key: report", "- task_key: totals"),
        f"{JOB}:30: {NIGHTLY}: task 'totals' {TWICE}",
    ),
    (
        Rule.DUPLICATE_TASK_KEY,
        (ROOT, "max_retries: 2\n", "max_retries: 2\n            - task_key: refresh\n"),
        f"{ROOT}:52: {NIGHTLY}: task 'refresh' {TWICE}",
    ),
    (Rule.TASK_WITHOUT_TYPE, (JOB, PIPELINE_TASK, ""), f"{JOB}:13: {NIGHTLY}: task 'refresh' {NO_TYPE}"),
    (
        Rule.TASK_WITHOUT_TYPE,
        (JOB, LAST, FOR_EACH_TASK.replace("notebook_task", "notebook") + LAST),
        f"{JOB}:34: {NIGHTLY}: task 'inner' {NO_TYPE}",
    ),
    (
        Rule.UNDEFINED_ENVIRONMENT_KEY,
        (JOB, "key: default\n          py", "key: defualt\n          py"),
        f"{JOB}:19: {NIGHTLY}: task 'check' has environment_key 'defualt', {UNDEFINED}: did you mean 'def",
    ),
    (
        Rule.UNDEFINED_JOB_CLUSTER_KEY,
        (JOB, "- job_cluster_key: small", "- job_cluster_key: large"),
        f"{JOB}:27: {NIGHTLY}: task 'report' has job_cluster_key 'small', {UNDEFINED}: define it under 'job",
    ),
    (
        Rule.NEVER_FIRES,
        (JOB, "0 30 2 ? * MON-FRI", "0 30 2 30 2 ?"),
        f"{JOB}:6: {NIGHTLY}: '0 30 2 30 2 ?' fires on no day from now on: correct its day, month or year",
    ),
    (
        Rule.EMPTY_GLOB,
        (PIPELINE, "../src/transformations/**", "../src/absent/**"),
        f"{PIPELINE}:11: {ETL}: 'src/absent/**' {NO_SOURCE}",
    ),
    (
        Rule.EMPTY_GLOB,
        (PIPELINE, "../src/transformations/**", "../src/transformations/order.sql"),
        f"{PIPELINE}:11: {ETL}: 'src/transformations/order.sql' {NO_SOURCE}",
    ),
    (
        Rule.MISSING_LIBRARY,
        (JOB, "../dist/*.whl", "../dists/*.whl"),
        f"{JOB}:45: {NIGHTLY}: 'dists/*.whl' {NO_WHEEL}",
    ),
    (
        Rule.MISSING_LIBRARY,
        (JOB, "../dist/*.whl", "../dist/shpo-*.whl"),
        f"{JOB}:45: {NIGHTLY}: 'dist/shpo-*.whl' {NO_WHEEL}",
    ),
    (
        Rule.MISSING_LIBRARY,
        (PIPELINE, "../dist/*.whl", IN_FILES),
        f"{PIPELINE}:14: {ETL}: 'libs/shop-1-py3-none-any.whl' {NO_WHEEL}",
    ),
    (
        Rule.MISSING_LIBRARY,
        (JOB, CLUSTER, f"{CLUSTER}          libraries: [{{jar: ../lib/a.jar}}]\n"),
        f"{JOB}:28: {NIGHTLY}: 'lib/a.jar' {NO_WHEEL}",
    ),
    (
        Rule.MISSING_ENTRY_POINT,
        (JOB, "entry_point: shop", "entry_point: shpo"),
        f"{JOB}:22: {NIGHTLY}: entry point 'shpo' of 'shop' leads to no 'shop:shpo': did you mean 'shop'?",
    ),
    (
        Rule.MISSING_ENTRY_POINT,
        (PROJECT, "shop.cli:main", "shop.client:main"),
        f"{JOB}:22: {NIGHTLY}: entry point 'shop' of 'shop' leads to no 'shop.client:main'",
    ),
    (
        Rule.MISSING_ENTRY_POINT,
        (MODULE, "def main()", "def run()"),
        f"{JOB}:22: {NIGHTLY}: entry point 'shop' of 'shop' leads to no 'shop.cli:main'",
    ),
    (
        Rule.UNDEFINED_RESOURCE,
        (JOB, "${resources.pipelines.etl.id}", "${resources.pipelines.elt.id}"),
        f"{JOB}:15: {NIGHTLY}: 'resources.pipelines.elt.id' isn't there to refer to: did you mean 'etl'?",
    ),
    (Rule.UNREADABLE, (SCHEMA, "schemas:", "schemas: ["), f"{SCHEMA}: can't be read ("),
]


@pytest.mark.parametrize(("rule", "change", "message"), SPOILED)
def test_what_is_wrong_is_found_where_it_is(
    shop: BundleFiles, rule: Rule, change: tuple[str, str, str], message: str
) -> None:
    assert shop.findings() == []
    shop.replace(*change)
    (actual,) = shop.findings()
    assert actual.startswith(message)
    assert actual.endswith(f"[error: {rule}]")
    assert [finding.rule for finding in bundle.check(shop.root)] == [rule]
    left = bundle.check(shop.root, ignore=[rule])
    assert bool(left) == (rule is Rule.UNREADABLE)  # else nothing would be looked at, and all be right


def test_every_rule_has_a_bundle_that_breaks_it() -> None:
    assert {rule for rule, _, _ in SPOILED} == set(Rule)


@pytest.mark.parametrize(
    ("change", "message", "level"),
    [
        (
            (ROOT, "*.yml", "*.yml\n  - jobs/*.yml"),
            "include: 'jobs/*.yml' matches no file: correct",
            "advice",
        ),
        # A folder that git keeps only for this is for somebody else to fill.
        ((JOB, "../dist/*.whl", "../kept/*.whl"), f"'kept/*.whl' {NO_WHEEL}", "advice"),
        ((JOB, "../dist/*.whl", "${workspace.file_path}/kept/a.whl"), f"'kept/a.whl' {NO_WHEEL}", "error"),
    ],
)
def test_what_may_be_right_is_advice(
    shop: BundleFiles, change: tuple[str, str, str], message: str, level: str
) -> None:
    shop.write("kept/.gitignore", "*\n").replace(*change)
    examination = bundle.examine(shop.root)
    (actual,) = (*examination.problems, *examination.advice)
    assert message in str(actual)
    assert actual.level == level
    assert len(examination.problems) == (level == "error")


NO_SUCH_WHEEL = (JOB, "../dist/*.whl", "../absent/*.whl")
NO_SUCH_ENTRY_POINT = (JOB, "entry_point: shop", "entry_point: absent")


@pytest.mark.parametrize(
    "changes",
    [
        [(JOB, CLUSTER, "")],  # serverless
        [(JOB, 'environment_version: "4"', 'client: "1"')],
        [(JOB, LAST, FOR_EACH_TASK + LAST)],
        [(JOB, "0 30 2 ? * MON-FRI", "${var.when}")],
        [(JOB, CLUSTER, CLUSTER.replace("small", "${var.where}"))],
        [(JOB, "- job_cluster_key: small", "- job_cluster_key: ${var.where}")],
        [(JOB, CLUSTERS, "      job_clusters: ${var.clusters}\n")],
        [
            (
                JOB,
                "- task_key: check\n          depends_on:\n            - task_key: refresh",
                "- task_key: ${var.task}",
            )
        ],
        [(JOB, "../dist/*.whl", "-r ../absent.txt")],
        [(JOB, "../dist/*.whl", "shop @ https://example.com/shop-1-py3-none-any.whl"), NO_SUCH_ENTRY_POINT],
        [(JOB, "../dist/*.whl", "/Volumes/main/shop/libs/shop-1-py3-none-any.whl")],
        [(JOB, "../dist/*.whl", "--find-links ./absent.whl")],
        [(JOB, "../dist/*.whl", "${workspace.file_path}/libs/${bundle.git.commit}.whl")],
        [(JOB, "../dist/*.whl", "../*/*.whl")],
        [NO_SUCH_WHEEL, (ROOT, "uv build --wheel", "make wheels")],
        [NO_SUCH_WHEEL, (ROOT, "\nartifacts", "\nexperimental: {scripts: {prebuild: make}}\nartifacts")],
        [NO_SUCH_ENTRY_POINT, (PROJECT, 'version = "0.1.0"', 'dynamic = ["version", "scripts"]')],
        [NO_SUCH_ENTRY_POINT, (PROJECT, "[tool.hatch", "[tool.poetry.scripts]\nabsent = 'a:b'\n[tool.hatch")],
        [
            NO_SUCH_ENTRY_POINT,
            (PROJECT, "[tool.hatch", "[project.entry-points.all]\nabsent = 'a:b'\n[tool.hatch"),
        ],
        [NO_SUCH_ENTRY_POINT, ("setup.py", "", "from setuptools import setup")],
        [NO_SUCH_ENTRY_POINT, ("src/shop/__init__.py", '"""A', 'from shop.other import *\n"""A')],
        [(JOB, "entry_point: shop", "entry_point: ${var.entry}")],
        [NO_SUCH_ENTRY_POINT, (JOB, "package_name: shop", "package_name: another")],
        [(PROJECT, "shop.cli:main", "elsewhere.cli:main")],
        [(PROJECT, "shop.cli:main", "elsewhere:main"), ("tasks.py", "", "x")],
        [(PROJECT, "shop.cli:main", "data.cli:main"), ("data/a.csv", "", "")],
        [(PROJECT, "shop.cli:main", "shop.compiled:main"), ("src/shop/compiled.pyx", "", "x")],
        [(PIPELINE, "../dist/*.whl", "--editable ${workspace.file_path}")],
        [(PIPELINE, "../src/transformations/**", "../src/notebooks/report")],
        [(PIPELINE, "../src/transformations/**", "../src/transformations")],
        [(PIPELINE, "../src/transformations/**", "/Workspace/Shared/absent/**")],
        [(PIPELINE, "schema: ${resources.schemas.shop.name}", "target: old")],
        [(SCHEMA, "name: ${var.schema}", "name: $${resources.jobs.absent.id}")],
    ],
)
def test_what_is_only_unusual_or_not_known_is_left_alone(
    shop: BundleFiles, changes: list[tuple[str, str, str]]
) -> None:
    for file, old, new in changes:
        shop.replace(file, old, new) if old else shop.write(file, new)
    assert shop.findings() == []


def test_a_project_with_nothing_but_setup_is_built_unasked(tmp_path: Path) -> None:
    made = BundleFiles(tmp_path).write(ROOT, SETUP)
    assert len(made.findings()) == 1
    assert made.write("setup.py", "from setuptools import setup").findings() == []


SETUP = """\
bundle: {name: old}
resources:
  jobs:
    run: {tasks: [{task_key: a, run_job_task: {job_id: 1}, libraries: [{whl: dist/*.whl}]}]}
"""
JOBS_IN_PYTHON = """\
bundle: {name: made}
python: {venv_path: .venv, resources: ["resources:load"]}
include: [resources/*.yml, resources/*/*.yml]
targets:
  dev: {mode: development, default: true, workspace: {host: https://example.com}}
resources:
  pipelines:
    all:
      name: all
      target: main
      configuration: {job: "${resources.jobs.made_in_python.id}"}
      libraries: [{notebook: {path: ./a.py}}]
"""
TWO_WHEELS = """\
bundle: {name: two}
artifacts:
  first: {type: whl, build: poetry build, path: ./first}
  second: {type: whl, path: ./second}
resources:
  jobs:
    both:
      tasks:
        - task_key: run
          existing_cluster_id: abc
          spark_python_task: {python_file: ./run.py}
          libraries: [{whl: ./first/dist/*.whl}, {whl: second/dist/*.whl}, {jar: "${var.jar}"}]
variables:
  unused: {description: Nobody asks for it.}
"""
SHARED = """\
bundle: {name: shared}
sync: {paths: [../common, .]}
resources:
  pipelines:
    etl:
      libraries:
        - {glob: {include: ../common/**}}
        - {glob: {include: "${workspace.file_path}/common/*.sql"}}
      root_path: ${workspace.file_path}/common
  jobs:
    run:
      email_notifications: {on_failure: []}
      parameters: [{name: input, default: ""}]
      tasks:
        - {task_key: a, run_job_task: {job_id: 1}}
        - task_key: b
          depends_on: [{task_key: a, outcome: "true"}]
          environment_key: default
          notebook_task: {notebook_path: ./a}
      environments: [{environment_key: default}]
"""
FLEET = """\
bundle: {name: fleet}
variables:
  version: {default: 0.2.0}
  dependencies:
    type: complex
    default:
      - ${workspace.file_path}/libs/ferry-${var.version}-py3-none-any.whl[databricks,fleet]
      - ferry[databricks]==0.2.0
      - ferry[fleet] @ git+https://example.com/ferry@v0.2.0
      - --index-url https://example.com/simple
  libraries:
    type: complex
    default:
      - {whl: "${workspace.file_path}/libs/ferry-${var.version}-py3-none-any.whl"}
      - {pypi: {package: "sqlalchemy>=2"}}
targets: {dev: {}}
resources:
  pipelines:
    migration:
      libraries: [{file: {path: src/migrate.py}}]
      environment: {dependencies: "${var.dependencies}"}
  jobs:
    migrate:
      tasks:
        - task_key: migrate
          libraries: ${var.libraries}
          environment_key: default
          python_wheel_task: {package_name: ferry, entry_point: ferry}
      environments: [{environment_key: default, spec: {dependencies: "${var.dependencies}"}}]
"""


@pytest.mark.parametrize("text", [JOBS_IN_PYTHON, TWO_WHEELS, SHARED, FLEET])
def test_shapes_that_the_cli_accepts_are_all_right(tmp_path: Path, text: str) -> None:
    made = BundleFiles(tmp_path / "bundle").write(ROOT, text).write("libs/ferry-0.2.0-py3-none-any.whl", "")
    made.write("../common/query.sql", "SELECT 1")
    assert made.findings() == []


def test_a_wheel_that_complex_variables_name_is_looked_for(tmp_path: Path) -> None:
    made = BundleFiles(tmp_path).write(ROOT, FLEET).write("libs/ferry-0.1.0-py3-none-any.whl", "")
    error = f"'libs/ferry-0.2.0-py3-none-any.whl' {NO_WHEEL} [error: missing-library]"
    assert made.findings() == [
        f"{ROOT}:7: resources.jobs.migrate: {error}",
        f"{ROOT}:7: resources.pipelines.migration: {error}",
        f"{ROOT}:14: resources.jobs.migrate: {error}",
    ]
