"""The shapes of resources: stricter than ``from_dict``, and the same where that is strict."""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Iterator
from importlib import import_module

import pytest
from tests.unit.bundle_files import JOB, PIPELINE, ROOT, BundleFiles

from tableferry import bundle
from tableferry.bundle import kinds

NIGHTLY = f"{JOB}: resources.jobs.nightly"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("name: {a: b}", ".name: must be text, not a mapping: correct it"),
        ("name: [a]", ".name: must be text, not a list: correct it"),
        ("name:", ".name: has no value: write one, or remove the key"),
        (
            "name: x\n      max_concurrent_runs: 1.5",
            ".max_concurrent_runs: must be a whole number, not 1.5: correct it",
        ),
        (
            "name: x\n      max_concurrent_runs: true",
            ".max_concurrent_runs: must be a whole number, not true: correct it",
        ),
        (
            "name: x\n      max_concurrent_runs: [1]",
            ".max_concurrent_runs: must be a whole number, not a list: correct it",
        ),
        (
            "name: x\n      max_concurrent_runs: a${bundle.git.branch}",
            ".max_concurrent_runs: must be a whole number, not 'a${bundle.git.branch}': correct it",
        ),
        ("name: x\n      tags: [a]", ".tags: must be a mapping, not a list: correct it"),
        ("name: x\n      tags: {a: {b: c}}", ".tags.a: must be text, not a mapping: correct it"),
        (
            "name: x\n      parameters: {name: a, default: b}",
            ".parameters: must be a list, not a mapping: correct it",
        ),
        ("name: x\n      parameters: [a]", ".parameters[0]: must be a mapping, not 'a': correct it"),
        ("name: x\n      parameters: [~]", ".parameters[0]: has no value: write one, or remove the key"),
        ("name: x\n      parameters: [{name: a}]", ".parameters[0]: lacks 'default': write it"),
        ("name: x\n      parameters: [{name: , default: b}]", ".parameters[0]: lacks 'name': write it"),
        (
            "name: x\n      queue: {enabled: perhaps}",
            ".queue.enabled: must be true or false, not 'perhaps': correct it",
        ),
        (
            "name: x\n      queue: {enabled: [true]}",
            ".queue.enabled: must be true or false, not a list: correct it",
        ),
    ],
)
def test_what_does_not_fit(shop: BundleFiles, line: str, message: str) -> None:
    shop.replace(JOB, "name: shop_nightly", line)
    assert shop.messages() == [NIGHTLY + message]


@pytest.mark.parametrize(
    "line",
    [
        "name: 7",
        "name: x\n      max_concurrent_runs: '7'",
        "name: x\n      max_concurrent_runs: 7.0",
        "name: x\n      max_concurrent_runs: ${resources.pipelines.etl.id}",
        "name: x\n      queue: {enabled: yes}",
        "name: x\n      queue: {enabled: '${bundle.git.branch}'}",
        "name: x\n      tags: {a: 1, b: true, c: 1.5}",
        "name: x\n      tags:",
        "name: x\n      parameters: []",
        "name: x\n      health: {rules: [{metric: RUN_DURATION_SECONDS, op: GREATER_THAN, value: 10}]}",
    ],
)
def test_what_fits(shop: BundleFiles, line: str) -> None:
    shop.replace(JOB, "name: shop_nightly", line)
    assert shop.messages() == []


def test_many_deviations_are_told_at_once(shop: BundleFiles) -> None:
    shop.replace(JOB, "name: shop_nightly", "name: [x]\n      descripton: y")
    shop.replace(PIPELINE, "serverless: true", "serverless: perhaps")
    assert [problem.place.rsplit(".", 1)[1] for problem in shop.problems()] == [
        "serverless",
        "descripton",
        "name",
    ]


def test_other_kinds_have_shapes_too(shop: BundleFiles) -> None:
    shop.write("resources/more.yml", "resources: {clusters: {small: {spark_version: x, num_worker: 1}}}")
    assert shop.messages() == [
        "resources/more.yml: resources.clusters.small.num_worker: unknown field 'num_worker': "
        "did you mean 'num_workers'?"
    ]


def test_the_package_has_the_last_word(shop: BundleFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    job = import_module("databricks.bundles.jobs").Job

    def refuse(value: object) -> None:
        raise ValueError("not today")

    monkeypatch.setattr(job, "from_dict", refuse)
    assert shop.messages() == [f"{NIGHTLY}: databricks-bundles refuses it: not today: correct it there"]


@pytest.fixture
def without_package(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Python as it is where the package isn't installed."""
    monkeypatch.setitem(sys.modules, "databricks.bundles.core", None)
    kinds.types_installed.cache_clear()
    kinds.type_of.cache_clear()
    yield
    monkeypatch.undo()
    kinds.types_installed.cache_clear()
    kinds.type_of.cache_clear()


@pytest.mark.usefixtures("without_package")
def test_without_the_package_the_rest_is_checked_and_it_says_so(shop: BundleFiles) -> None:
    shop.replace(JOB, "name: shop_nightly", "nmae: shop_nightly")
    shop.replace(ROOT, "mode: development", "mode: devel")
    shop.replace(JOB, "${resources.pipelines.etl.id}", "${resources.pipelines.etl.nothing}")
    with pytest.warns(UserWarning, match="databricks-bundles isn't installed"):
        problems = bundle.check(shop.root)
    assert [problem.place for problem in problems] == ["targets.dev.mode"]
    (note,) = bundle.examine(shop.root).notes
    assert note.endswith("weren't looked for: pip install 'tableferry[bundle]'")


def test_every_kind_that_the_package_knows_is_known() -> None:
    package = import_module("databricks.bundles")
    inside = {module.name for module in pkgutil.iter_modules(package.__path__)} - {"build", "core", "version"}
    assert {"jobs", "pipelines", "schemas", "volumes"} <= inside
    assert inside - set(kinds.KINDS) == set()
    assert {kind for kind in kinds.KINDS if kinds.type_of(kind)} == inside
