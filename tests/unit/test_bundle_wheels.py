"""Files, wheels, and the entry points that tasks call."""

from __future__ import annotations

import pytest
from tests.unit.bundle_files import JOB, PIPELINE, PROJECT, ROOT, BundleFiles

NIGHTLY = f"{JOB}: resources.jobs.nightly"
REPORT = f"{NIGHTLY}.tasks[2].notebook_task.notebook_path"
WHEEL_TASK = f"{NIGHTLY}.tasks[1].python_wheel_task"
ENVIRONMENT = f"{NIGHTLY}.environments[0].spec.dependencies"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "../src/notebooks/report.py",
            "../src/notebooks/report",
            f"{REPORT}: there is no notebook '../src/notebooks/report': "
            "did you mean '../src/notebooks/report.py'?",
        ),
        (
            "../src/notebooks/report.py",
            "../src/shop/cli.py",
            f"{REPORT}: '../src/shop/cli.py' isn't a notebook: "
            "begin it with the line '# Databricks notebook source'",
        ),
        (
            "../src/notebooks/report.py",
            "../src/queries/totals.sql",
            f"{REPORT}: '../src/queries/totals.sql' isn't a notebook: "
            "begin it with the line '-- Databricks notebook source'",
        ),
        (
            "../src/notebooks/report.py",
            "../../report.py",
            f"{REPORT}: '../../report.py' lies outside of what is synchronised to the workspace: "
            "move it into the bundle's folder, or widen sync.paths",
        ),
        (
            "../src/queries/totals.sql",
            "../src/queries/total.sql",
            f"{NIGHTLY}.tasks[3].sql_task.file.path: there is no file '../src/queries/total.sql': "
            f"correct the path, which is relative to the folder of {JOB}",
        ),
        (
            "        - task_key: totals",
            "        - task_key: load\n          environment_key: default\n"
            "          spark_python_task: {python_file: ../src/load.py}\n        - task_key: totals",
            f"{NIGHTLY}.tasks[3].spark_python_task.python_file: there is no file '../src/load.py': "
            f"correct the path, which is relative to the folder of {JOB}",
        ),
        (
            '"${resources.schemas.shop.name}"',
            "'${workspace.file_path}/src/settings.json'",
            f"{WHEEL_TASK}.parameters[2]: there is no 'src/settings.json' to be synchronised to "
            "'${workspace.file_path}/src/settings.json': correct the path, or add the file",
        ),
    ],
)
def test_files_of_a_job(shop: BundleFiles, old: str, new: str, message: str) -> None:
    shop.replace(JOB, old, new)
    assert shop.messages() == [message]


@pytest.mark.parametrize(
    "path",
    [
        "/Workspace/Shared/report",
        "${workspace.file_path}/src/notebooks/report",
        "${workspace.root_path}/report",
    ],
)
def test_notebooks_that_are_not_looked_for(shop: BundleFiles, path: str) -> None:
    shop.replace(JOB, "../src/notebooks/report.py", path)
    assert shop.messages() == []


def test_paths_of_another_repository_are_not_looked_for(shop: BundleFiles) -> None:
    shop.replace(JOB, "../src/notebooks/report.py", "reports/report")
    source = "git_source: {git_provider: gitHub, git_url: 'https://example.com'}"
    shop.replace(JOB, "name: shop_nightly", f"name: shop_nightly\n      {source}")
    assert shop.messages() == []


def test_what_lies_outside_of_the_synchronised_paths(shop: BundleFiles) -> None:
    shop.replace(
        ROOT, "include:\n", "sync:\n  paths: [src/shop, src/transformations, src/notebooks]\n\ninclude:\n"
    )
    lies = "move it into the bundle's folder, or widen sync.paths"
    assert shop.messages() == [
        f"{PIPELINE}: resources.pipelines.etl.configuration.shop.folder: "
        "'src/queries' isn't synchronised to the workspace: add it to sync.paths",
        f"{NIGHTLY}.tasks[3].sql_task.file.path: '../src/queries/totals.sql' "
        f"lies outside of what is synchronised to the workspace: {lies}",
    ]
    shop.replace(ROOT, "src/notebooks]", "src]")
    assert shop.messages() == []


def test_files_above_a_bundle_that_synchronises_them(shop: BundleFiles) -> None:
    (shop.root.parent / "report.py").write_text("# Databricks notebook source\n", "utf-8")
    shop.replace(JOB, "../src/notebooks/report.py", "../../report.py")
    shop.replace(PIPELINE, "${workspace.file_path}/src", "${workspace.file_path}/shop/src")
    shop.replace(ROOT, "include:\n", "sync:\n  paths: [.., .]\n\ninclude:\n")
    assert shop.messages() == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "    build: uv build --wheel\n",
            "",
            f"{ROOT}: artifacts.wheel: has no 'build', so that setup.py would be run, which isn't there: "
            "write 'build: uv build --wheel'",
        ),
        (
            "    build: uv build --wheel\n",
            "    build: uv build --wheel\n    path: python\n",
            f"{ROOT}: artifacts.wheel.path: there is no folder 'python': correct the path",
        ),
        (
            "    type: whl\n    build: uv build --wheel\n",
            "    type: whl\n    files: [{source: dist/*.whl}]\n",
            f"{ROOT}: artifacts.wheel.files[0].source: 'dist/*.whl' matches no file: "
            "correct it, or say how to 'build' it",
        ),
        (
            "include:\n",
            "include:\n  - shop.yml\n",
            f"{ROOT}: include[0]: 'shop.yml' matches no file: "
            "correct the pattern, or remove it if nothing is meant",
        ),
        (
            "    build: uv build --wheel\n",
            "    build: uv build --wheel\n  jar:\n    type: jar\n",
            f"{ROOT}: artifacts.jar: says neither how it's built nor which files it is: "
            "write 'build' or 'files'",
        ),
    ],
)
def test_artifacts(shop: BundleFiles, old: str, new: str, message: str) -> None:
    shop.replace(ROOT, old, new)
    assert shop.messages() == [message]


def test_an_artifact_without_a_project(shop: BundleFiles) -> None:
    shop.remove(PROJECT)
    assert shop.messages() == [
        f"{ROOT}: artifacts.wheel: there is no pyproject.toml in '.' to build a wheel from: add it"
    ]


@pytest.mark.parametrize(
    ("build", "dependency"),
    [
        ("uv build --wheel --out-dir build/wheels", "../build/wheels/*.whl"),
        ("python -m build -w -o out", "../out/shop-*.whl"),
        ("uv build --wheel", "../dist/shop-0.1.0-py3-none-any.whl[extra]"),
        ("uv build --wheel", "../dist/s*.whl"),
    ],
)
def test_where_a_wheel_will_lie(shop: BundleFiles, build: str, dependency: str) -> None:
    shop.replace(ROOT, "uv build --wheel", build)
    for file in (JOB, PIPELINE):
        shop.replace(file, "../dist/*.whl", f'"{dependency}"')
    assert shop.messages() == []


def test_a_wheel_of_another_name(shop: BundleFiles) -> None:
    shop.replace(JOB, "../dist/*.whl", "../dist/market-*.whl")
    assert [problem.place for problem in shop.problems()] == [
        "resources.jobs.nightly.environments[0].spec.dependencies[0]"
    ]


def test_a_wheel_that_is_there_needs_no_artifact(shop: BundleFiles) -> None:
    shop.write("dist/other-1-py3-none-any.whl", "")
    shop.replace(PIPELINE, "../dist/*.whl", "../dist/other-*.whl")
    assert shop.messages() == []


@pytest.mark.parametrize(
    ("dependency", "message"),
    [
        (
            "-r ../requirements.txt",
            "there is no '../requirements.txt': correct the path, which is relative to the folder of " + JOB,
        ),
        (
            "--requirement ../pyproject.toml",
            "the CLI leaves the path after '--requirement' as it is: write -r or -e and one space",
        ),
        ("-e ../src", "there is no pyproject.toml to install '-e ../src' from: add it, or correct the path"),
        (
            "--editable ${workspace.file_path}/src",
            "there is no pyproject.toml to install '--editable ${workspace.file_path}/src' from: "
            "add it, or correct the path",
        ),
        (
            "./shop.jar",
            "'./shop.jar' matches no file, and no artifact builds one there: "
            "correct it, or write an artifact of type whl that builds it",
        ),
    ],
)
def test_dependencies_that_are_not_there(shop: BundleFiles, dependency: str, message: str) -> None:
    shop.replace(
        JOB, "              - ../dist/*.whl", f"              - ../dist/*.whl\n              - {dependency}"
    )
    assert shop.messages() == [f"{ENVIRONMENT}[1]: {message}"]


@pytest.mark.parametrize(
    "dependency",
    [
        "-e ..",
        "--editable ${workspace.file_path}",
        "shop==1.0",
        "Shop[extra]>=1 ; python_version > '3'",
        "/Volumes/a/b/c/x.whl",
        "-r /Workspace/r.txt",
    ],
)
def test_other_ways_to_install_the_project(shop: BundleFiles, dependency: str) -> None:
    shop.replace(JOB, "- ../dist/*.whl", f'- "{dependency}"')
    assert shop.messages() == []


def test_an_editable_project_that_is_not_synchronised(shop: BundleFiles) -> None:
    shop.replace(PIPELINE, "../dist/*.whl", "--editable ${workspace.file_path}")
    shop.replace(ROOT, "include:\n", "sync:\n  paths: [src]\n\ninclude:\n")
    assert shop.messages() == [
        f"{PIPELINE}: resources.pipelines.etl.environment.dependencies[0]: the project of "
        "'--editable ${workspace.file_path}' isn't synchronised to the workspace: add it to sync.paths"
    ]


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        (
            JOB,
            "package_name: shop",
            "package_name: shopp",
            f"{WHEEL_TASK}.package_name: the task's dependencies install no 'shopp': did you mean 'shop'?",
        ),
        (
            PROJECT,
            'name = "shop"',
            'name = "market"',
            f"{WHEEL_TASK}.package_name: the task's dependencies install no 'shop': write 'market'",
        ),
        (
            JOB,
            "- ../dist/*.whl",
            "- pandas",
            f"{WHEEL_TASK}.package_name: the task's dependencies install no 'shop': add its wheel to them",
        ),
        (
            JOB,
            "entry_point: shop",
            "entry_point: shops",
            f"{WHEEL_TASK}.entry_point: 'shops' isn't an entry point of 'shop': did you mean 'shop'?",
        ),
        (
            JOB,
            "entry_point: shop",
            "entry_point: run",
            f"{WHEEL_TASK}.entry_point: 'run' isn't an entry point of 'shop': "
            "define it in project.scripts of pyproject.toml",
        ),
        (
            PROJECT,
            "shop.cli:main",
            "shop.cli",
            f"{PROJECT}: project.scripts.shop: 'shop.cli' names no function: write module:function",
        ),
        (
            PROJECT,
            "shop.cli:main",
            "shop.cli:mian",
            f"{PROJECT}: project.scripts.shop: module 'shop.cli' has no 'mian': did you mean 'main'?",
        ),
        (
            PROJECT,
            "shop.cli:main",
            "shop.cly:main",
            f"{PROJECT}: project.scripts.shop: there is no module 'shop.cly' in 'shop': "
            "correct it, or add the file",
        ),
        (
            PROJECT,
            "shop.cli:main",
            "transformations.cli:main",
            f"{PROJECT}: project.scripts.shop: "
            "module 'transformations.cli' isn't in the wheel, which holds 'shop': "
            "correct the module",
        ),
        (
            PROJECT,
            'packages = ["src/shop"]',
            'packages = ["src/market"]',
            f"{PROJECT}: tool.hatch.build.targets.wheel.packages: "
            "the wheel's package 'src/market' isn't there: "
            "correct the path",
        ),
        (
            PROJECT,
            'name = "shop"',
            "name = shop",
            f"{PROJECT}: can't be read (Invalid value (at line 6, column 8)): fix it there",
        ),
    ],
)
def test_what_a_wheel_task_calls(shop: BundleFiles, file: str, old: str, new: str, message: str) -> None:
    shop.replace(file, old, new)
    assert shop.messages() == [message]


def test_names_of_a_package_are_compared_as_indexes_do(shop: BundleFiles) -> None:
    shop.replace(PROJECT, 'name = "shop"', 'name = "Shop.Tools"')
    shop.replace(JOB, "package_name: shop", "package_name: shop_tools")
    assert shop.messages() == []


def test_a_function_of_the_package_is_called_where_there_is_no_entry_point(shop: BundleFiles) -> None:
    shop.replace(JOB, "entry_point: shop", "entry_point: run")
    shop.write("src/shop/__init__.py", "def run() -> None: ...\n")
    assert shop.messages() == []


def test_libraries_of_a_cluster(shop: BundleFiles) -> None:
    shop.replace(
        JOB,
        "          environment_key: default\n          python",
        "          job_cluster_key: small\n          libraries: [{whl: ../dist/*.whl}]\n          python",
    )
    shop.replace(JOB, "package_name: shop", "package_name: market")
    messages = shop.messages()
    assert f"{WHEEL_TASK}.package_name: the task's dependencies install no 'market': write 'shop'" in messages
    shop.replace(JOB, "{whl: ../dist/*.whl}", "{pypi: {package: market}}")
    assert [message for message in shop.messages() if WHEEL_TASK in message] == []


@pytest.mark.parametrize(
    ("source", "fine"),
    [
        ("async def main(): ...", True),
        ("class main: ...", True),
        ("from shop import other as main", True),
        ("from shop import *", True),
        ("def __getattr__(name): ...", True),
        ("main = print", True),
        ("a, main = 1, print", True),
        ("main: object = print", True),
        ("try:\n    import a\nexcept ImportError:\n    def main(): ...", True),
        ("if True:\n    pass\nelse:\n    def main(): ...", True),
        ("with open('x') as f:\n    main = f", True),
        ("import shop.main", False),
        ("def f():\n    def main(): ...", False),
        ("x = main", False),
        ("x = '\\d'\ndef main(): ...", True),
    ],
)
def test_what_defines_an_entry_point(shop: BundleFiles, source: str, fine: bool) -> None:
    shop.write("src/shop/cli.py", source)
    assert (shop.messages() == []) is fine


def test_a_module_that_cannot_be_read(shop: BundleFiles) -> None:
    shop.write("src/shop/cli.py", "def main(:\n")
    (only,) = shop.messages()
    assert only.startswith(f"{PROJECT}: project.scripts.shop: module 'shop.cli' can't be read (")
    assert only.endswith("at line 1): fix the file")


@pytest.mark.parametrize(
    ("backend", "settings", "fine"),
    [
        ("hatchling.build", "", True),
        ("uv_build", "", True),
        ("uv_build", '[tool.uv.build-backend]\nmodule-root = ""', False),
        ("uv_build", '[tool.uv.build-backend]\nmodule-name = "market"', False),
        ("setuptools.build_meta", "", True),
        ("poetry.core.masonry.api", "", True),
    ],
)
def test_other_ways_to_build(shop: BundleFiles, backend: str, settings: str, fine: bool) -> None:
    shop.replace(PROJECT, '[tool.hatch.build.targets.wheel]\npackages = ["src/shop"]\n', settings)
    shop.replace(PROJECT, "hatchling.build", backend)
    assert (shop.messages() == []) is (fine or ("module-root" in settings and backend != "uv_build"))


def test_entry_points_of_other_groups_and_dynamic_ones(shop: BundleFiles) -> None:
    shop.replace(PROJECT, "[project.scripts]\n", '[project.entry-points."shop.jobs"]\n')
    assert shop.messages() == []
    shop.replace(PROJECT, "shop.cli:main", "shop.clu:main")
    assert shop.messages() == [
        f"{PROJECT}: project.entry-points.shop.jobs.shop: there is no module 'shop.clu' in 'shop': "
        "correct it, or add the file"
    ]
    shop.replace(
        PROJECT, '[project.entry-points."shop.jobs"]\nshop = "shop.clu:main"\n', 'dynamic = ["scripts"]\n'
    )
    assert shop.messages() == []
