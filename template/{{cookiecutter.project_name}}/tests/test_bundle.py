"""What can be tested without a workspace: references and files of the bundle{% if cookiecutter.route in ["all", "pipelines"] %}, its specs{% endif %} and its versions."""

import re
import tomllib
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

{% if cookiecutter.route in ["all", "pipelines"] %}
import pytest
{% endif %}
import yaml
{% if cookiecutter.route in ["all", "pipelines"] %}
from tableferry.pipelines import specs
{% endif %}

ROOT = Path(__file__).parents[1]
SETTINGS = yaml.safe_load((ROOT / "databricks.yml").read_text(encoding="utf-8"))
FILES = {file for pattern in ["databricks.yml", *SETTINGS["include"]] for file in ROOT.glob(pattern)}
TREES = {file: yaml.safe_load(file.read_text(encoding="utf-8")) for file in FILES}
REFERENCE = re.compile(r"\$\{(var\.[\w-]+|resources(?:\.[\w-]+){2})")
COMPUTE = {"environment_key": "environments", "job_cluster_key": "job_clusters"}


def nodes(tree: Any) -> Iterator[Any]:
    """Yield a YAML tree and everything in it."""
    yield tree
    for item in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from nodes(item)


def texts() -> list[tuple[Path, str]]:
    return [(file, text) for file, tree in TREES.items() for text in nodes(tree) if isinstance(text, str)]


def resources() -> Iterator[tuple[str, str, Any]]:
    """Yield each resource, for all targets or for one, with its kind and name."""
    for node in [node for tree in TREES.values() for node in nodes(tree) if isinstance(node, dict)]:
        for kind, group in (node.get("resources") or {}).items():
            yield from ((kind, name, resource) for name, resource in group.items())


def test_references_are_defined() -> None:
    defined = {f"resources.{kind}.{name}" for kind, name, _ in resources()}
    defined |= {f"var.{name}" for tree in TREES.values() for name in tree.get("variables", {})}
    assert {name for _, text in texts() for name in REFERENCE.findall(text)} - defined == set()


def test_files_exist() -> None:
    # Paths with a dot are relative to the file's folder; paths in the workspace are relative to the bundle's.
    local = [file.parent / text for file, text in texts() if re.fullmatch(r"\.{1,2}/[^*]+", text)]
    uploaded = [re.fullmatch(r"\$\{workspace\.file_path\}/([^$*]+)", text) for _, text in texts()]
    paths = [*local, *(ROOT / match[1] for match in uploaded if match)]
    assert [path for path in paths if not path.exists()] == []
    assert [pattern for pattern in SETTINGS["include"] if not any(ROOT.glob(pattern))] == []


def test_tasks_depend_on_tasks_and_compute_of_their_job() -> None:
    for job in [resource for kind, _, resource in resources() if kind == "jobs" and "tasks" in resource]:
        keys = [task["task_key"] for task in job["tasks"]]
        assert len(keys) == len(set(keys)), f"{job['name']} has a task_key twice"
        before = [[other["task_key"] for other in task.get("depends_on", [])] for task in job["tasks"]]
        order = TopologicalSorter(dict(zip(keys, before, strict=True)))
        assert set(order.static_order()) == set(keys), job["name"]
        for task in [node for node in nodes(job["tasks"]) if isinstance(node, dict) and "task_key" in node]:
            for key, group in COMPUTE.items():
                assert task.get(key) in [None, *(entry[key] for entry in job.get(group, []))], job["name"]


def test_jobs_have_a_timeout_and_no_retries() -> None:
    for job in [resource for kind, _, resource in resources() if kind == "jobs" and "tasks" in resource]:
        assert job["timeout_seconds"] > 0, job["name"]
        for task in [node for node in nodes(job["tasks"]) if isinstance(node, dict) and "task_key" in node]:
            starts = {"python_wheel_task", "spark_python_task", "pipeline_task"} & task.keys()
            assert not starts or task["max_retries"] == 0, (job["name"], task["task_key"])
            # Serverless compute repeats failed tasks otherwise.
            assert "environment_key" not in task or task["disable_auto_optimization"], task["task_key"]


def test_versions_of_tableferry_are_the_same() -> None:
    version = SETTINGS["variables"]["tableferry_version"]["default"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert [line for line in project["dependencies"] if line.endswith(version)]
{% if cookiecutter.route in ["all", "pipelines"] %}


@pytest.mark.parametrize("environment", ["dev", "prod"])
def test_specs_load(environment: str) -> None:
    project = specs.load(ROOT / "src" / "orders", environment=environment)
    assert [dataflow.target.name.table for dataflow in project.dataflows] == ["customers", "orders"]
{% endif %}
