"""How a bundle's files are read and laid over each other."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.bundle_files import JOB, PIPELINE, ROOT, BundleFiles

from tableferry import bundle

EMPTY_KEY = "resources.jobs.nightly"


def test_a_folder_that_is_no_bundle(tmp_path: Path) -> None:
    assert [str(problem) for problem in bundle.check(tmp_path)] == [
        f"databricks.yml: isn't in {tmp_path}: name the folder of a bundle"
    ]
    assert [problem.what for problem in bundle.check(tmp_path / "absent")] == [
        f"isn't in {tmp_path / 'absent'}"
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a: [\n",
            "isn't valid YAML (did not find expected node content at line 2, column 1): fix it there",
        ),
        ("", "is empty: fill it or remove it"),
        ("# nothing\n", "is empty: fill it or remove it"),
        ("- a\n", "must hold a mapping, not a list: write keys such as 'resources:'"),
        ("a: &a [*a]\n", "a[0]: contains itself through a YAML anchor: write it out"),
        ("a: " + "[" * 200 + "]" * 200, "is nested too deeply: flatten it to at most 100 levels"),
        ("1: a\n", "key 1 isn't text: put it in quotes"),
        ("? [a, b]\n: c\n", "key of more than one value isn't text: put it in quotes"),
        ("a:\n  <<: [b]\n", "a: merges with '<<' what isn't a mapping: name an anchor of a mapping"),
    ],
)
def test_a_file_that_cannot_be_taken(shop: BundleFiles, text: str, message: str) -> None:
    shop.write(JOB, text)
    assert shop.messages() == [f"{JOB}: {message}"]


def test_a_file_of_too_many_aliases(shop: BundleFiles) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 8)]
    shop.write(JOB, "\n".join(lines))
    assert shop.messages() == [f"{JOB}: holds too much: write out fewer YAML aliases"]


def test_a_file_that_is_not_text(shop: BundleFiles) -> None:
    (shop.root / JOB).write_bytes(b"a: \xff")
    assert shop.messages() == [f"{JOB}: isn't UTF-8 text (byte 3): save it as UTF-8"]


def test_yes_and_on_are_words(shop: BundleFiles) -> None:
    shop.replace(JOB, "name: shop_nightly", "name: shop_nightly\n      tags: {on: yes, off: no}")
    assert shop.messages() == []


def test_anchors_and_merges(shop: BundleFiles) -> None:
    shop.write(
        "resources/copies.job.yml",
        """
task: &task
  notebook_task:
    notebook_path: ../src/notebooks/report.py
resources:
  jobs:
    copies:
      tasks:
        - <<: *task
          task_key: one
        - task_key: two
          <<: [*task, {max_retries: 1}]
""",
    )
    assert shop.messages() == []


def test_what_only_anchors_use_is_no_unknown_field(shop: BundleFiles) -> None:
    shop.replace(JOB, "resources:\n", "unused: 1\nresources:\n")
    assert shop.messages() == [f"{JOB}: unused: unknown field 'unused': remove it"]


def test_an_include_that_matches_nothing(shop: BundleFiles) -> None:
    shop.replace(ROOT, "  - resources/*.yml", "  - resources/*.yml\n  - jobs/*.yml")
    assert shop.messages() == [
        f"{ROOT}: include[1]: 'jobs/*.yml' matches no file: "
        "correct the pattern, or remove it if nothing is meant"
    ]


def test_includes_that_are_not_read(shop: BundleFiles) -> None:
    shop.replace(
        ROOT, "  - resources/*.yml", "  - resources/*.yml\n  - src/shop/cli.py\n  - /etc/x.yml\n  - [a]"
    )
    shop.replace(JOB, "resources:\n", "include: [more.yml]\nresources:\n")
    assert shop.messages() == [
        f"{ROOT}: include[1]: includes src/shop/cli.py, which isn't YAML: "
        "include .yml, .yaml or .json files only",
        f"{ROOT}: include[2]: is an absolute path: write it relative to the bundle's folder",
        f"{ROOT}: include[3]: must be a path, not a list: write a path or a pattern",
        f"{JOB}: include: isn't read here: move it to databricks.yml, the only file whose includes count",
    ]


def test_two_roots(shop: BundleFiles) -> None:
    shop.write("bundle.yml", "bundle: {name: other}")
    assert shop.messages() == [
        f"{ROOT}: isn't the only root: bundle.yml is one too: keep databricks.yml alone"
    ]


def test_a_resource_that_two_files_define(shop: BundleFiles) -> None:
    shop.write("resources/other.job.yml", "resources: {jobs: {nightly: {name: other}}}")
    assert shop.messages() == [
        f"resources/other.job.yml: resources.jobs.nightly: has the key 'nightly', which {JOB}: "
        "resources.jobs.nightly has too: give each resource a key of its own"
    ]


def test_two_kinds_of_one_key(shop: BundleFiles) -> None:
    shop.write("resources/other.job.yml", "resources: {jobs: {etl: {name: other}}}")
    assert shop.messages() == [
        f"resources/other.job.yml: resources.jobs.etl: has the key 'etl', which {PIPELINE}: "
        "resources.pipelines.etl has too: give each resource a key of its own"
    ]


def test_a_target_lays_tasks_over_those_of_the_same_key(shop: BundleFiles) -> None:
    shop.replace(ROOT, "              max_retries: 2", "              max_retrie: 2")
    path = "targets.prod.resources.jobs.nightly.tasks[0].max_retrie"
    assert shop.messages() == [f"{ROOT}: {path}: unknown field 'max_retrie': did you mean 'max_retries'?"]
    assert shop.messages("dev") == []


def test_a_target_may_name_what_it_lays_over_by_a_variable(shop: BundleFiles) -> None:
    shop.replace(ROOT, "- task_key: refresh", "- task_key: ${var.first}")
    shop.replace(ROOT, "variables:\n  catalog:\n", "variables:\n  first:\n    default: refresh\n  catalog:\n")
    assert shop.messages() == []


def test_a_target_writes_another_kind_of_value(shop: BundleFiles) -> None:
    shop.replace(
        ROOT,
        "          tasks:\n            - task_key: refresh\n              max_retries: 2\n",
        "          tasks: none\n",
    )
    assert shop.messages() == [
        f"{ROOT}: targets.prod.resources.jobs.nightly.tasks: is 'none', where {JOB}: "
        "resources.jobs.nightly.tasks has a list: write the same kind in both"
    ]


def test_a_resource_of_one_target_only(shop: BundleFiles) -> None:
    shop.write(
        "resources/sample.job.yml",
        "targets: {dev: {resources: {jobs: {sample: {tasks: [{task_key: a}]}}}}}",
    )
    assert shop.messages("prod") == []
    assert shop.messages() == [
        "resources/sample.job.yml: targets.dev.resources.jobs.sample.tasks[0]: the task has no type: "
        "give it one, such as notebook_task or python_wheel_task"
    ]


def test_a_problem_of_one_target_says_of_which(shop: BundleFiles) -> None:
    shop.replace(ROOT, "      catalog: sandbox\n", "      catalog: sandbox\n      notify: nobody\n")
    assert shop.messages() == [
        f"{JOB}: resources.jobs.nightly.email_notifications.on_failure[0]: "
        "'nobody' isn't an e-mail address (in target 'dev'): write one"
    ]


def test_a_resource_that_says_nothing(shop: BundleFiles) -> None:
    shop.write("resources/more.yml", "resources: {jobs: {empty: }, volums: {a: {}}, dashboards: none}")
    assert shop.messages() == [
        "resources/more.yml: resources.dashboards: must be a mapping, not 'none': "
        "write resources by their keys",
        "resources/more.yml: resources.jobs.empty: says nothing: fill it or remove it",
        "resources/more.yml: resources.volums: there is no kind of resource 'volums': "
        "did you mean 'volumes'?",
    ]
