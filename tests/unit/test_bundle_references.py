"""Variables and references: each one resolves, or is named with what is near."""

from __future__ import annotations

import pytest
from tests.unit.bundle_files import JOB, PIPELINE, ROOT, SCHEMA, BundleFiles

PIPELINE_ID = f"{JOB}: resources.jobs.nightly.tasks[0].pipeline_task.pipeline_id"


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("resources.pipeline.etl.id", "there is no kind of resource 'pipeline': did you mean 'pipelines'?"),
        ("resources.pipelines.nightly.id", "there is no 'nightly' in resources.pipelines: write 'etl'"),
        (
            "resources.clusters.etl.id",
            "there is no 'etl' in resources.clusters: did you mean 'pipelines.etl'?",
        ),
        (
            "resources.clusters.some.id",
            "there is no 'some' in resources.clusters: define it, or correct the name",
        ),
        ("resources.pipelines.etl", "it names no field: write ${resources.pipelines.etl.id}"),
        ("resources.pipelines.etl.idd", "resources.pipelines have no 'idd': did you mean 'id'?"),
        (
            "resources.schemas.shop.grants[0].princpal",
            "resources.schemas have no 'grants[0].princpal': did you mean 'principal'?",
        ),
        ("resources.pipelines", "there is no '' in resources.pipelines: write 'etl'"),
        ("bundle.nam", "'bundle' has no 'nam': did you mean 'name'?"),
        ("bundle.git.brnch", "'bundle' has no 'brnch': did you mean 'branch'?"),
        ("workspace.current_user.shortname", "'workspace' has no 'shortname': did you mean 'short_name'?"),
        ("artifacts.wheels.path", "there is no artifact 'wheels': did you mean 'wheel'?"),
        ("var.catlog", "there is no variable 'catlog': did you mean 'catalog'?"),
        ("var.zzz", "there is no variable 'zzz': define it under 'variables'"),
        ("var.cluster.node_type", "variable 'cluster' has no such value: correct the path"),
        ("var", "it refers to nothing: write all of its name, as in ${var.catalog}"),
        ("variables.catalog.default", "it refers to nothing: write all of its name, as in ${var.catalog}"),
    ],
)
def test_what_a_reference_does_not_find(shop: BundleFiles, reference: str, message: str) -> None:
    shop.replace(JOB, "${resources.pipelines.etl.id}", f"${{{reference}}}")
    assert shop.messages() == [f"{PIPELINE_ID}: '${{{reference}}}' can't be resolved, as {message}"]


@pytest.mark.parametrize(
    "text",
    [
        "${resources.pipelines.etl.pipeline_id}",
        "${resources.pipelines.etl.name}",
        "${resources.jobs.nightly.tasks[0].task_key}-x",
        "${resources.volumes.state.volume_path}/a",
        "${resources.schemas.shop.grants[0].principal}",
        "${bundle.target}-${bundle.git.branch}-${bundle.git.commit}",
        "${workspace.current_user.userName} ${workspace.root_path} ${workspace.file_path}",
        "${artifacts.wheel.files[0].source}",
        "${var.cluster.node_type_id}",
        "${variables.catalog.value}",
        "$${var.nothing}",
        "${HOME} ${1} ${}",
        "{{job.parameters.day}}",
    ],
)
def test_what_resolves_or_is_left_alone(shop: BundleFiles, text: str) -> None:
    if "resources.jobs" in text:
        shop.replace(PIPELINE, "name: shop_etl", f"name: {text}")
        shop.replace(
            JOB,
            "pipeline_task:\n            pipeline_id: ${resources.pipelines.etl.id}",
            "run_job_task: {job_id: 1}",
        )
    else:
        shop.replace(JOB, "name: shop_nightly", f"name: '{text}'")
    assert shop.messages() == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "${var. notify}",
            "'${var. notify}' isn't a reference as the CLI reads it, and stays as it is: "
            "write names of letters, digits, '-' and '_', with '.' between them and no spaces",
        ),
        (
            "${bundle.target.}",
            "'${bundle.target.}' isn't a reference as the CLI reads it, and stays as it is: "
            "write names of letters, digits, '-' and '_', with '.' between them and no spaces",
        ),
        ("${vars.notify}", "'${vars.notify}' refers to 'vars', which there isn't: did you mean 'var'?"),
        (
            "${targets.dev.mode}",
            "'${targets.dev.mode}' isn't resolved: a target can't be referred to: "
            "use ${bundle.target}, or a variable that each target sets",
        ),
        (
            "a-${var.cluster}",
            "'${var.cluster}' is a mapping, which can't stand inside text: refer to a single value in it",
        ),
    ],
)
def test_what_would_be_deployed_as_it_is_written(shop: BundleFiles, text: str, message: str) -> None:
    shop.replace(JOB, "name: shop_nightly", f"name: '{text}'")
    assert shop.messages() == [f"{JOB}: resources.jobs.nightly.name: {message}"]


def test_a_variable_is_checked_with_the_value_of_each_target(shop: BundleFiles) -> None:
    shop.replace(JOB, "name: shop_nightly", "name: shop_nightly\n      max_concurrent_runs: ${var.runs}")
    shop.replace(ROOT, "      catalog: sandbox\n", "      catalog: sandbox\n      runs: some\n")
    shop.replace(ROOT, "variables:\n  catalog:\n", "variables:\n  runs:\n    default: 2\n  catalog:\n")
    assert shop.messages() == [
        f"{JOB}: resources.jobs.nightly.max_concurrent_runs: "
        "must be a whole number, not 'some' (in target 'dev'): correct it"
    ]


def test_the_parts_of_a_complex_variable_are_told_where_they_are_written(shop: BundleFiles) -> None:
    shop.replace(ROOT, "      num_workers: 2", "      num_worker: 2")
    assert shop.messages() == [
        f"{ROOT}: variables.cluster.default.num_worker: unknown field 'num_worker': "
        "did you mean 'num_workers'?"
    ]


def test_an_unused_variable(shop: BundleFiles) -> None:
    shop.replace(JOB, "${var.notify}", "data@example.com")
    assert shop.messages() == [f"{ROOT}: variables.notify: variable 'notify' isn't used: use it or remove it"]


def test_python_code_may_use_a_variable_and_define_a_resource(shop: BundleFiles) -> None:
    shop.replace(JOB, "${var.notify}", "data@example.com")
    shop.replace(JOB, "${resources.pipelines.etl.id}", "${resources.pipelines.made.id}")
    shop.replace(ROOT, "include:\n", "python:\n  resources: [shop.resources:load]\n\ninclude:\n")
    assert shop.messages() == []


def test_a_value_for_a_variable_that_there_is_not(shop: BundleFiles) -> None:
    shop.replace(ROOT, "      catalog: sandbox", "      catlog: sandbox")
    assert shop.messages() == [
        f"{ROOT}: targets.dev.variables.catlog: target 'dev' sets variable 'catlog', which isn't defined: "
        "did you mean 'catalog'?"
    ]


def test_a_variable_that_is_looked_up_has_a_value(shop: BundleFiles) -> None:
    shop.replace(ROOT, "      catalog: sandbox", "      catalog: {lookup: {metastore: main}}")
    assert shop.messages() == []
    shop.replace(ROOT, "{lookup: {metastore: main}}", "{default: sandbox, description: Mine.}")
    assert shop.messages() == []


def test_a_lookup_of_an_unknown_kind(shop: BundleFiles) -> None:
    shop.replace(ROOT, "    default: shop\n", "    lookup: {warehuose: shop}\n")
    assert shop.messages() == [
        f"{ROOT}: variables.schema.lookup.warehuose: unknown field 'warehuose': did you mean 'warehouse'?"
    ]


def test_values_that_a_file_of_the_cli_sets(shop: BundleFiles) -> None:
    shop.replace(ROOT, "    variables:\n      catalog: sandbox\n", "")
    shop.write(".databricks/bundle/dev/variable-overrides.json", '{"catalog": "mine"}')
    assert shop.messages() == []
    shop.write(".databricks/bundle/dev/variable-overrides.json", "[")
    assert [problem.file for problem in shop.problems()] == [
        ".databricks/bundle/dev/variable-overrides.json",
        ROOT,
    ]


def test_variables_that_refer_to_each_other(shop: BundleFiles) -> None:
    shop.replace(ROOT, "    default: shop\n", "    default: ${var.notify}\n")
    shop.replace(ROOT, "    default: data@example.com", "    default: ${var.schema}")
    ring = ["${var.schema}", "${var.notify}", "${var.schema}"]
    assert (
        f"{ROOT}: variables.notify.default: refers to itself: {' → '.join(ring)}: "
        "write a value at one of these places" in shop.messages()
    )
    assert {problem.file for problem in shop.problems()} == {ROOT}


def test_a_chain_of_references_that_is_too_long(shop: BundleFiles) -> None:
    chain = "".join(f"  v{n:03}:\n    default: ${{var.v{n + 1:03}}}\n" for n in range(100))
    chain += "  v100:\n    default: shop\n"
    shop.replace(ROOT, "variables:\n  catalog:\n", f"variables:\n{chain}  catalog:\n")
    shop.replace(JOB, "name: shop_nightly", "name: ${var.v000}")
    messages = shop.messages()
    assert messages[0] == (
        f"{ROOT}: variables.v049.default: '${{var.v050}}' is reached through 50 other references: "
        "refer to it more directly"
    )
    assert {problem.remedy for problem in shop.problems()} == {"refer to it more directly"}


def test_resources_that_refer_to_each_other(shop: BundleFiles) -> None:
    shop.replace(PIPELINE, "name: shop_etl", "name: ${resources.jobs.nightly.name}")
    assert shop.messages() == [
        f"{JOB}: resources.jobs.nightly: the resources refer to each other: "
        "jobs.nightly → pipelines.etl → jobs.nightly: take one of the references out"
    ]


def test_the_bundles_schema_by_its_variable_inside_text(shop: BundleFiles) -> None:
    shop.replace(JOB, '"${resources.schemas.shop.name}"', '"${var.catalog}.${var.schema}"')
    assert shop.messages() == [
        f"{JOB}: resources.jobs.nightly.tasks[1].python_wheel_task.parameters[2]: "
        f"'${{var.schema}}' is the name of "
        "schema 'shop' before development mode prefixes it: write ${resources.schemas.shop.name}"
    ]
    shop.replace(ROOT, "include:\n", "experimental:\n  skip_name_prefix_for_schema: true\n\ninclude:\n")
    assert shop.messages() == []


def test_a_schema_of_somebody_else_by_its_variable(shop: BundleFiles) -> None:
    shop.replace(SCHEMA, "name: ${var.schema}", "name: ${var.schema}_mine")
    shop.replace(JOB, '"${resources.schemas.shop.name}"', '"${var.schema}"')
    assert shop.messages() == []


def test_a_key_and_a_name_without_references(shop: BundleFiles) -> None:
    shop.replace(ROOT, "  name: shop", "  name: shop-${bundle.target}")
    shop.write(
        "resources/more.yml",
        "resources: {jobs: {'${var.schema}': {tasks: [{task_key: a, run_job_task: {job_id: 1}}]}}}",
    )
    assert shop.messages() == [
        f"{ROOT}: bundle.name: a bundle's name can't hold a reference, as its state is found by it: "
        "write the name",
        "resources/more.yml: resources.jobs.${var.schema}: a resource's key can't hold a reference: "
        "write the key",
    ]
