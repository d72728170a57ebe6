"""The defects that the Databricks CLI finds out late or never: one bundle each, and one sentence each."""

from __future__ import annotations

from tests.unit.bundle_files import JOB, PIPELINE, ROOT, VOLUME, BundleFiles

from tableferry import bundle

NIGHTLY = f"{JOB}: resources.jobs.nightly"
ETL = f"{PIPELINE}: resources.pipelines.etl"


def test_a_bundle_that_is_all_right(shop: BundleFiles) -> None:
    examination = bundle.examine(shop.root)
    assert examination.problems == ()
    assert examination.notes == ()
    assert examination.targets == ("dev", "prod")
    assert examination.files == (
        ROOT,
        PIPELINE,
        JOB,
        "resources/shop.schema.yml",
        VOLUME,
    )
    assert bundle.check(shop.root) == ()


def test_an_unknown_field(shop: BundleFiles) -> None:
    shop.replace(JOB, "name: shop_nightly", "nmae: shop_nightly")
    assert shop.messages() == [f"{NIGHTLY}.nmae: unknown field 'nmae': did you mean 'name'?"]


def test_an_unknown_field_far_inside(shop: BundleFiles) -> None:
    shop.replace(JOB, "timezone_id: Europe/Berlin", "timezone_id: Europe/Berlin\n        pause: PAUSED")
    assert shop.messages() == [
        f"{NIGHTLY}.schedule.pause: unknown field 'pause': did you mean 'pause_status'?"
    ]


def test_a_wrong_type(shop: BundleFiles) -> None:
    shop.replace(JOB, "name: shop_nightly", "name: shop_nightly\n      max_concurrent_runs: many")
    assert shop.messages() == [
        f"{NIGHTLY}.max_concurrent_runs: must be a whole number, not 'many': correct it"
    ]


def test_a_word_that_an_enumeration_does_not_have(shop: BundleFiles) -> None:
    shop.replace(JOB, "pause_status: UNPAUSED", "pause_status: RUNNING")
    assert shop.messages() == [
        f"{NIGHTLY}.schedule.pause_status: 'RUNNING' isn't one of 'UNPAUSED', 'PAUSED': write one of them"
    ]


def test_a_required_field_that_is_missing(shop: BundleFiles) -> None:
    shop.replace(JOB, "        timezone_id: Europe/Berlin\n", "")
    assert shop.messages() == [f"{NIGHTLY}.schedule: lacks 'timezone_id': write it"]


def test_a_missing_file(shop: BundleFiles) -> None:
    shop.remove("src/notebooks/report.py")
    assert shop.messages() == [
        f"{NIGHTLY}.tasks[2].notebook_task.notebook_path: there is no notebook '../src/notebooks/report.py': "
        f"correct the path, which is relative to the folder of {JOB}"
    ]


def test_an_undefined_variable(shop: BundleFiles) -> None:
    shop.replace(JOB, "${var.notify}", "${var.notfiy}")
    assert shop.messages() == [
        f"{NIGHTLY}.email_notifications.on_failure[0]: '${{var.notfiy}}' can't be resolved, "
        "as there is no variable 'notfiy': did you mean 'notify'?"
    ]


def test_a_key_that_is_there_twice(shop: BundleFiles) -> None:
    shop.replace(JOB, "name: shop_nightly", "name: shop_nightly\n      name: nightly")
    assert shop.messages() == [f"{NIGHTLY}.name: key 'name' is written more than once: keep one"]


def test_a_reference_to_a_resource_that_there_is_not(shop: BundleFiles) -> None:
    shop.replace(JOB, "${resources.pipelines.etl.id}", "${resources.pipelines.elt.id}")
    assert shop.messages() == [
        f"{NIGHTLY}.tasks[0].pipeline_task.pipeline_id: '${{resources.pipelines.elt.id}}' can't be resolved, "
        "as there is no 'elt' in resources.pipelines: did you mean 'etl'?"
    ]


def test_a_pattern_of_wheels_that_matches_nothing(shop: BundleFiles) -> None:
    shop.replace(PIPELINE, "../dist/*.whl", "../wheels/*.whl")
    assert shop.messages() == [
        f"{ETL}.environment.dependencies[0]: '../wheels/*.whl' matches no file, "
        "and no artifact builds one there: correct it, or write an artifact of type whl that builds it"
    ]


def test_an_undefined_environment_key(shop: BundleFiles) -> None:
    shop.replace(JOB, "          environment_key: default\n", "          environment_key: serverless\n")
    assert shop.messages() == [
        f"{NIGHTLY}.tasks[1].environment_key: environment_key 'serverless' isn't defined "
        "under 'environments': write 'default'"
    ]


def test_waiting_for_a_task_that_there_is_not(shop: BundleFiles) -> None:
    shop.replace(JOB, "            - task_key: refresh", "            - task_key: refreshed")
    assert shop.messages() == [
        f"{NIGHTLY}.tasks[1].depends_on[0].task_key: there is no task 'refreshed' to wait for: "
        "did you mean 'refresh'?"
    ]


def test_a_task_key_that_is_there_twice(shop: BundleFiles) -> None:
    shop.replace(JOB, "- task_key: totals", "- task_key: report")
    assert shop.messages() == [
        f"{NIGHTLY}.tasks[3].task_key: task_key 'report' is there twice, which makes the two tasks one: "
        "give each task a key of its own"
    ]


def test_a_schedule_with_five_fields(shop: BundleFiles) -> None:
    shop.replace(JOB, "0 30 2 ? * MON-FRI", "30 2 * * 1-5")
    assert shop.messages() == [
        f"{NIGHTLY}.schedule.quartz_cron_expression: '30 2 * * 1-5' would be refused: there are 5 fields, "
        "and Quartz takes 6 or 7 (seconds, minutes, hours, day of month, month, day of week, year): "
        "begin with the seconds, as in '0 30 2 ? * MON-FRI'"
    ]


def test_a_schedule_out_of_range(shop: BundleFiles) -> None:
    shop.replace(JOB, "0 30 2 ? * MON-FRI", "0 30 24 ? * MON-FRI")
    assert shop.messages() == [
        f"{NIGHTLY}.schedule.quartz_cron_expression: '0 30 24 ? * MON-FRI' would be refused: "
        "hours '24' is no value of that field: write 0 to 23"
    ]


def test_a_task_without_a_type(shop: BundleFiles) -> None:
    shop.replace(
        JOB, "pipeline_task:\n            pipeline_id: ${resources.pipelines.etl.id}", "max_retries: 1"
    )
    assert shop.messages() == [
        f"{NIGHTLY}.tasks[0]: the task has no type: give it one, such as notebook_task or python_wheel_task"
    ]


def test_a_pipeline_pattern_that_matches_nothing(shop: BundleFiles) -> None:
    shop.remove("src/transformations/orders.sql")
    assert shop.messages() == [
        f"{ETL}.libraries[0].glob.include: '../src/transformations/**' matches no source file: "
        "correct the path, or add a .py or .sql file"
    ]


def test_the_schema_by_its_variable(shop: BundleFiles) -> None:
    shop.replace(VOLUME, "${resources.schemas.shop.name}", "${var.schema}")
    assert shop.messages() == [
        f"{VOLUME}: resources.volumes.state.schema_name: '${{var.schema}}' is the name of schema 'shop' "
        "before development mode prefixes it: write ${resources.schemas.shop.name}"
    ]


def test_no_environment_variable_gives_a_value_unasked(shop: BundleFiles) -> None:
    shop.replace(ROOT, "    variables:\n      catalog: sandbox\n", "")
    assert shop.messages() == [
        f"{ROOT}: variables.catalog: has no value in target 'dev': "
        "set it in targets.dev.variables, or give it a default"
    ]
    assert shop.messages(environment={"BUNDLE_VAR_catalog": "sandbox"}) == []
