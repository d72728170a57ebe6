"""Jobs: their tasks, what these run on, schedules and notifications."""

from __future__ import annotations

import zoneinfo

import pytest
from tests.unit.bundle_files import JOB, ROOT, BundleFiles

NIGHTLY = f"{JOB}: resources.jobs.nightly"


@pytest.mark.parametrize(
    ("old", "new", "path", "message"),
    [
        (
            "          job_cluster_key: small\n",
            "          job_cluster_key: smal\n",
            ".tasks[2].job_cluster_key",
            "job_cluster_key 'smal' isn't defined under 'job_clusters': did you mean 'small'?",
        ),
        (
            "          job_cluster_key: small\n",
            "          existing_cluster_id: 1234\n",
            ".job_clusters[0].job_cluster_key",
            "no task uses job_cluster_key 'small': use it or remove it",
        ),
        (
            "          job_cluster_key: small\n",
            "          job_cluster_key: small\n          existing_cluster_id: 1234\n",
            ".tasks[2].existing_cluster_id",
            "stands beside 'job_cluster_key', and a task runs on one of them: keep one",
        ),
        (
            'environment_version: "4"',
            'client: "4"',
            ".environments[0].spec.client",
            "'client' is deprecated: write it as environment_version",
        ),
        (
            '            environment_version: "4"\n',
            "",
            ".environments[0].spec",
            'says no version of the environment: write environment_version, such as "4"',
        ),
        (
            "          notebook_task:",
            "          run_job_task:\n            job_id: 1\n          notebook_task:",
            ".tasks[2]",
            "the task is of 2 types: 'run_job_task', 'notebook_task': make two tasks of it",
        ),
        (
            "          python_wheel_task:",
            "          libraries: [{pypi: {package: pandas}}]\n          python_wheel_task:",
            ".tasks[1].libraries",
            "a task with an environment_key takes no libraries: "
            "write them into the environment's dependencies",
        ),
        (
            "            - task_key: refresh",
            "            - task_key: refresh\n              outcome: 'true'",
            ".tasks[1].depends_on[0].outcome",
            "task 'refresh' has no outcome, as it isn't a condition_task: remove 'outcome'",
        ),
        (
            "            - task_key: refresh",
            "            - task_key: refresh\n            - task_key: refresh",
            ".tasks[1].depends_on[1].task_key",
            "waits for task 'refresh' twice: keep one",
        ),
        (
            "            - task_key: refresh",
            "            - task_key: refresh\n            - {}",
            ".tasks[1].depends_on[1]",
            "lacks 'task_key': write it",
        ),
        (
            "            - task_key: refresh",
            "            - task_key: report",
            ".tasks[1].depends_on",
            "the tasks wait for each other: check → report → check: take one of them out",
        ),
        (
            "            - task_key: refresh",
            "            - task_key: check",
            ".tasks[1].depends_on",
            "the tasks wait for each other: check → check: take one of them out",
        ),
        (
            "        timezone_id: Europe/Berlin",
            "        timezone_id: Europe/Berln",
            ".schedule.timezone_id",
            "there is no timezone 'Europe/Berln': did you mean 'Europe/Berlin'?",
        ),
        (
            "        timezone_id: Europe/Berlin",
            "        timezone_id: ../secret",
            ".schedule.timezone_id",
            "there is no timezone '../secret': write one such as 'UTC' or 'Europe/Berlin'",
        ),
        (
            "      tasks:\n",
            "      trigger:\n        periodic: {interval: 1, unit: DAYS}\n      tasks:\n",
            ".trigger",
            "stands beside 'schedule', and a job starts by one of them: keep one",
        ),
        (
            "          - ${var.notify}",
            "          - ${var.notify}\n          - ''",
            ".email_notifications.on_failure[1]",
            "is an empty e-mail address, which is refused when it's deployed: "
            "write an address, or leave it out",
        ),
        (
            "          - ${var.notify}",
            "          - ${var.notify}\n          - data",
            ".email_notifications.on_failure[1]",
            "'data' isn't an e-mail address: write one",
        ),
    ],
)
def test_what_is_wrong(shop: BundleFiles, old: str, new: str, path: str, message: str) -> None:
    shop.replace(JOB, old, new)
    assert shop.messages() == [f"{NIGHTLY}{path}: {message}"]


@pytest.mark.parametrize("zone", ["UTC", "GMT+02:00", "GMT-8", "America/New_York", "${bundle.git.branch}"])
def test_timezones(shop: BundleFiles, zone: str) -> None:
    shop.replace(JOB, "Europe/Berlin", zone)
    assert shop.messages() == []


def test_a_machine_without_timezones_refuses_none(shop: BundleFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> None:
        raise zoneinfo.ZoneInfoNotFoundError(name)

    monkeypatch.setattr("tableferry.bundle.jobs.ZoneInfo", unknown)
    shop.replace(JOB, "Europe/Berlin", "Europe/Berln")
    assert shop.messages() == []


def test_an_empty_variable_is_no_address(shop: BundleFiles) -> None:
    shop.replace(ROOT, "default: data@example.com", 'default: ""')
    assert shop.messages() == [
        f"{NIGHTLY}.email_notifications.on_failure[0]: is an empty e-mail address, "
        "which is refused when it's deployed: write an address, or leave it out"
    ]


def test_tasks_that_run_for_each_input_are_tasks(shop: BundleFiles) -> None:
    shop.replace(
        JOB,
        "          job_cluster_key: small\n          notebook_task:\n"
        "            notebook_path: ../src/notebooks/report.py\n",
        "          for_each_task:\n            inputs: '[1, 2]'\n            task:\n"
        "              task_key: each\n              job_cluster_key: small\n              notebook_task:\n"
        "                notebook_path: ../src/notebooks/reports.py\n",
    )
    assert shop.messages() == [
        f"{NIGHTLY}.tasks[2].for_each_task.task.notebook_task.notebook_path: "
        "there is no notebook '../src/notebooks/reports.py': "
        f"correct the path, which is relative to the folder of {JOB}"
    ]


def test_a_task_with_nothing_to_run_on(shop: BundleFiles) -> None:
    shop.replace(JOB, "          environment_key: default\n          python", "          python")
    assert shop.messages() == [
        f"{NIGHTLY}.environments[0].environment_key: no task uses environment_key 'default': "
        "use it or remove it",
        f"{NIGHTLY}.tasks[1]: a python_wheel_task needs something to run on: "
        "write one of 'environment_key', 'existing_cluster_id', 'job_cluster_key', 'new_cluster'",
    ]


def test_an_environment_key_that_is_there_twice(shop: BundleFiles) -> None:
    text = (shop.root / JOB).read_text("utf-8")
    environment = text[text.index("        - environment_key: default\n          spec") :]
    shop.write(JOB, text + environment)
    assert shop.messages() == [
        f"{NIGHTLY}.environments[1].environment_key: environment_key 'default' is there twice: "
        "give each one a key of its own"
    ]


def test_a_job_without_tasks(shop: BundleFiles) -> None:
    shop.write("resources/more.yml", "resources: {jobs: {idle: {name: idle}}}")
    assert shop.messages() == [
        "resources/more.yml: resources.jobs.idle: has no tasks: write one under 'tasks'"
    ]
