"""The security rules of a bundle's CI, on GitHub, Azure DevOps and GitLab.

Each rule is a function that lists violations in the parsed file. It has a test on the files of the template,
and a counter-example for each system, in which it finds a violation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from scripts.render import made_from_template

pytestmark = pytest.mark.usefixtures("cookiecutters_own_settings")

FILES = {"github": ".github/workflows/bundle.yml", "azure": "azure-pipelines.yml", "gitlab": ".gitlab-ci.yml"}
SYSTEMS = tuple(FILES)
SHA = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}")
ACTIONS = {
    "actions/checkout": "3d3c42e5aac5ba805825da76410c181273ba90b1",
    "astral-sh/setup-uv": "c771a70e6277c0a99b617c7a806ffedaca235ff9",
    "actions/setup-java": "b6effb05e454b25005698d916606bdc6ffcbf961",
}


@dataclass(frozen=True)
class CiJob:
    """A job of a CI system, in the terms of the rules.

    Attributes:
        name: The name of the job.
        runs_on: What starts the job: ``pull request``, ``main``, ``tag``.
        scripts: The shell commands of its steps.
        environment: The environment that has its variables and approvals; empty if it has none.
        has_identity: Whether it can get a token or a secret.
        waits_for: The names of the jobs that must succeed before.
        gate: What starts a job with an environment: ``environment`` (its approvals) or ``by hand``.
        actions: The actions that its steps use.
        keeps_credentials: Whether a step keeps the token of the checkout.
    """

    name: str
    runs_on: frozenset[str]
    scripts: tuple[str, ...]
    environment: str = ""
    has_identity: bool = False
    waits_for: tuple[str, ...] = ()
    gate: str = ""
    actions: tuple[str, ...] = ()
    keeps_credentials: bool = False


Rule = Callable[[str, Mapping[str, CiJob]], list[str]]


def texts(tree: Any) -> Iterator[str]:
    """Yield the keys and texts in a YAML tree."""
    match tree:
        case dict():
            for key, value in tree.items():
                yield str(key)
                yield from texts(value)
        case list():
            for value in tree:
                yield from texts(value)
        case _:
            yield str(tree)


def read_jobs(system: str, tree: dict[Any, Any]) -> dict[str, CiJob]:
    """Return the jobs of a parsed file."""
    match system:
        case "github":
            return dict(_github(tree))
        case "azure":
            return dict(_azure(tree))
        case "gitlab":
            return dict(_gitlab(tree))
    raise ValueError(system)


def _github(tree: dict[Any, Any]) -> Iterator[tuple[str, CiJob]]:
    # YAML 1.1 reads the key "on" as true.
    events = tree.get("on") or tree[True]
    everywhere = dict(tree.get("permissions", {"contents": "write", "id-token": "write"}))
    for name, job in tree["jobs"].items():
        condition = job.get("if", "")
        runs_on = {"pull request"} if "pull_request" in events or "pull_request_target" in events else set()
        runs_on |= {"main", "tag"}
        if "event_name == 'push'" in condition:
            runs_on -= {"pull request"}
        if "event_name == 'pull_request'" in condition:
            runs_on &= {"pull request"}
        if "github.ref == 'refs/heads/main'" in condition:
            runs_on -= {"tag"}
        if "startsWith(github.ref, 'refs/tags/v')" in condition:
            runs_on -= {"main"}
        granted = {**everywhere, **job.get("permissions", {})}
        secret = any(re.search(r"secrets\.|github\.token", text) for text in texts(job))
        steps = job["steps"]
        checkouts = [step for step in steps if step.get("uses", "").startswith("actions/checkout@")]
        yield (
            name,
            CiJob(
                name,
                frozenset(runs_on),
                tuple(step["run"] for step in steps if "run" in step),
                environment=job.get("environment", ""),
                has_identity=secret or granted.get("id-token") == "write" or "write" in granted.values(),
                waits_for=tuple(_listed(job.get("needs"))),
                gate="environment"
                if job.get("environment") and ("tag" not in runs_on or "github.ref_protected" in condition)
                else "",
                actions=tuple(step["uses"] for step in steps if "uses" in step),
                keeps_credentials=any(
                    step.get("with", {}).get("persist-credentials", True) for step in checkouts
                ),
            ),
        )


def _azure(tree: dict[Any, Any]) -> Iterator[tuple[str, CiJob]]:
    everywhere = any("group" in variable for variable in _listed(tree.get("variables")))
    for stage in tree["stages"]:
        condition = stage.get("condition", "")
        runs_on = {"pull request", "main", "tag"}
        if "eq(variables['Build.Reason'], 'PullRequest')" in condition:
            runs_on &= {"pull request"}
        if "eq(variables['Build.SourceBranch'], 'refs/heads/main')" in condition:
            runs_on &= {"main"}
        if "startsWith(variables['Build.SourceBranch'], 'refs/tags/v')" in condition:
            runs_on &= {"tag"}
        for job in stage["jobs"]:
            steps = job.get("steps") or job["strategy"]["runOnce"]["deploy"]["steps"]
            groups = [variable for variable in _listed(stage.get("variables")) if "group" in variable]
            yield (
                stage["stage"],
                CiJob(
                    stage["stage"],
                    frozenset(runs_on),
                    tuple(step["script"] for step in steps if "script" in step),
                    environment=job.get("environment", ""),
                    has_identity=everywhere
                    or bool(groups)
                    or any("System.AccessToken" in text for text in texts(steps)),
                    waits_for=tuple(_listed(stage.get("dependsOn"))),
                    gate="environment" if "deployment" in job and job.get("environment") else "",
                    actions=tuple(step["task"] for step in steps if "task" in step),
                    keeps_credentials=any(
                        step.get("persistCredentials", False) for step in steps if "checkout" in step
                    ),
                ),
            )


_GITLABS_KEYS = {"stages", "default", "variables", "include", "workflow"}


def _gitlab(tree: dict[Any, Any]) -> Iterator[tuple[str, CiJob]]:
    default = tree.get("default", {})
    for name, written in tree.items():
        if name in _GITLABS_KEYS or name.startswith("."):
            continue
        job = {**default, **tree.get(written.get("extends"), {}), **written}
        runs_on, by_hand, protected = set(), True, True
        for rule in job["rules"]:
            condition = rule["if"]
            if '$CI_PIPELINE_SOURCE == "merge_request_event"' in condition:
                runs_on.add("pull request")
            elif "$CI_COMMIT_BRANCH == $CI_DEFAULT_BRANCH" in condition:
                runs_on.add("main")
            elif "$CI_COMMIT_TAG" in condition:
                runs_on.add("tag")
                protected &= '$CI_COMMIT_REF_PROTECTED == "true"' in condition
            by_hand &= rule.get("when") == "manual"
        environment = job.get("environment", "")
        yield (
            name,
            CiJob(
                name,
                frozenset(runs_on),
                (*_listed(job.get("before_script")), *job["script"]),
                environment=environment["name"] if isinstance(environment, dict) else environment,
                has_identity="id_tokens" in job or "secrets" in job,
                waits_for=tuple(tree["stages"][: tree["stages"].index(job["stage"])]),
                gate="by hand" if by_hand and protected else "",
            ),
        )


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def check_untrusted_code_has_no_identity(system: str, jobs: Mapping[str, CiJob]) -> list[str]:
    """Jobs that start with each pull request get neither a token nor an environment."""
    return [
        f"{job.name} gives a pull request an identity"
        for job in jobs.values()
        if "pull request" in job.runs_on and not job.gate and (job.has_identity or job.environment)
    ]


def check_pull_requests_are_tested(system: str, jobs: Mapping[str, CiJob]) -> list[str]:
    """Lint and tests run for a pull request without any approval."""
    ran = "\n".join(
        script
        for job in jobs.values()
        if "pull request" in job.runs_on and not job.gate
        for script in job.scripts
    )
    return [f"a pull request doesn't run {name}" for name in ("make lint", "make test") if name not in ran]


def check_validation_is_separate(system: str, jobs: Mapping[str, CiJob]) -> list[str]:
    """`bundle validate` runs in a job with a gate and an environment for a read-only identity."""
    validating = [job for job in jobs.values() if any("bundle validate" in script for script in job.scripts)]
    return [
        f"{job.name} validates without a separate identity and an approval"
        for job in validating
        if not job.gate
        or "validate" not in job.environment
        or any(re.search(r"make |bundle deploy", script) for script in job.scripts)
    ] or ([] if validating else ["no job validates the bundle"])


def check_main_deploys_to_dev(system: str, jobs: Mapping[str, CiJob]) -> list[str]:
    """Only a push to main deploys to dev, after the tests."""
    return _deployments(jobs, "dev", {"main"})


def check_tag_deploys_to_prod_through_a_gate(system: str, jobs: Mapping[str, CiJob]) -> list[str]:
    """Only a tag deploys to prod, after the tests and through a gate."""
    found = _deployments(jobs, "prod", {"tag"})
    return found + [
        f"{job.name} deploys to prod without a gate" for job in _deploying(jobs, "prod") if not job.gate
    ]


def check_actions_are_pinned(system: str, jobs: Mapping[str, CiJob]) -> list[str]:
    """Actions are pinned by the full hash of a commit, and tasks of Azure aren't used."""
    return [
        f"{job.name} uses {action}"
        for job in jobs.values()
        for action in job.actions
        if not SHA.fullmatch(action) or action.split("@")[1] != ACTIONS.get(action.split("@")[0])
    ]


def check_cli_has_version_and_checksum(system: str, jobs: Mapping[str, CiJob]) -> list[str]:
    """A job that uses the databricks CLI downloads one version, and checks it before it unpacks it."""
    found = []
    for job in jobs.values():
        script = "\n".join(job.scripts)
        if "databricks bundle" not in script:
            continue
        steps = [
            script.find("/download/v${DATABRICKS_CLI_VERSION}/"),
            script.find('"${DATABRICKS_CLI_SHA256}  '),
            script.find("sha256sum --check --strict"),
            script.find("unzip "),
            script.find("databricks bundle"),
        ]
        if -1 in steps or steps != sorted(steps):
            found.append(f"{job.name} installs the CLI without a version and a checksum")
    return found


def check_no_script_is_piped_into_a_shell(system: str, jobs: Mapping[str, CiJob]) -> list[str]:
    """No downloaded text goes into a shell or an interpreter."""
    piped = re.compile(
        r"\|\s*(?:sudo\s+)?(?:ba|z|da)?sh\b|\|\s*(?:sudo\s+)?python|\b(?:ba)?sh\s+<\(|eval\s+\"?\$\(curl"
    )
    return [
        f"{job.name} pipes a script into a shell"
        for job in jobs.values()
        if any(piped.search(script) for script in job.scripts)
    ]


def check_checkout_keeps_no_token(system: str, jobs: Mapping[str, CiJob]) -> list[str]:
    """The token of the checkout isn't left on the disk for later steps."""
    return [f"{job.name} keeps the checkout's token" for job in jobs.values() if job.keeps_credentials]


def _deploying(jobs: Mapping[str, CiJob], target: str) -> list[CiJob]:
    return [
        job
        for job in jobs.values()
        if any(re.search(rf"bundle deploy\b.*--target {target}\b", script) for script in job.scripts)
    ]


def _deployments(jobs: Mapping[str, CiJob], target: str, events: set[str]) -> list[str]:
    deploying = _deploying(jobs, target)
    return [
        f"{job.name} deploys to {target} for {sorted(job.runs_on)}, after {job.waits_for}"
        for job in deploying
        if job.runs_on != events or "test" not in job.waits_for or target not in job.environment
    ] or ([] if deploying else [f"no job deploys to {target}"])


RULES: tuple[Rule, ...] = (
    check_untrusted_code_has_no_identity,
    check_pull_requests_are_tested,
    check_validation_is_separate,
    check_main_deploys_to_dev,
    check_tag_deploys_to_prod_through_a_gate,
    check_actions_are_pinned,
    check_cli_has_version_and_checksum,
    check_no_script_is_piped_into_a_shell,
    check_checkout_keeps_no_token,
)


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[Any, Any]]]:
    """The parsed files of each system, for all packages and for a bundle without Spark."""
    variants = (
        {"package": "wheel"},
        {"package": "vendored"},
        {"package": "index", "package_source": "workspace", "route": "convert"},
    )
    folder = tmp_path_factory.mktemp("ci")
    found: dict[str, list[dict[Any, Any]]] = {system: [] for system in SYSTEMS}
    for system in SYSTEMS:
        for number, answers in enumerate(variants):
            made = made_from_template(Path(folder, f"{system}{number}"), {**answers, "ci": system})
            found[system].append(yaml.safe_load((made / FILES[system]).read_text("utf-8")))
    return found


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_file_keeps_rule(trees: dict[str, list[dict[Any, Any]]], system: str, rule: Rule) -> None:
    for tree in trees[system]:
        assert rule(system, read_jobs(system, tree)) == []


Change = Callable[[dict[Any, Any]], object]


def _stage(tree: dict[Any, Any], name: str) -> Any:
    return next(stage for stage in tree["stages"] if stage["stage"] == name)


def _steps(tree: dict[Any, Any], name: str) -> Any:
    (job,) = _stage(tree, name)["jobs"]
    return job.get("steps") or job["strategy"]["runOnce"]["deploy"]["steps"]


def _replace_cli(steps: list[Any], key: str) -> None:
    for step in steps:
        if "sha256sum" in step.get(key, ""):
            step[key] = step[key].replace("| sha256sum --check --strict", "> /dev/null")


PIPED = "curl -fsSL https://example.com/install.sh | sudo sh"

COUNTER_EXAMPLES: dict[tuple[Rule, str], Change] = {
    (check_untrusted_code_has_no_identity, "github"): lambda tree: tree["jobs"]["test"].update(
        permissions={"contents": "read", "id-token": "write"}
    ),
    (check_untrusted_code_has_no_identity, "azure"): lambda tree: _stage(tree, "test").update(
        variables=[{"group": "databricks-dev"}]
    ),
    (check_untrusted_code_has_no_identity, "gitlab"): lambda tree: tree["default"].update(
        id_tokens={"DATABRICKS_OIDC_TOKEN": {"aud": "$DATABRICKS_HOST"}}
    ),
    (check_pull_requests_are_tested, "github"): lambda tree: tree["jobs"]["test"].update(
        {"if": "github.event_name == 'push'"}
    ),
    (check_pull_requests_are_tested, "azure"): lambda tree: _stage(tree, "test").update(
        condition="eq(variables['Build.SourceBranch'], 'refs/heads/main')"
    ),
    (check_pull_requests_are_tested, "gitlab"): lambda tree: tree["test"]["rules"].pop(0),
    (check_validation_is_separate, "github"): lambda tree: tree["jobs"]["validate"].pop("environment"),
    (check_validation_is_separate, "azure"): lambda tree: _stage(tree, "validate")["jobs"][0].update(
        environment="databricks-dev"
    ),
    (check_validation_is_separate, "gitlab"): lambda tree: tree["validate"]["rules"][0].pop("when"),
    (check_main_deploys_to_dev, "github"): lambda tree: tree["jobs"]["deploy-dev"].pop("if"),
    (check_main_deploys_to_dev, "azure"): lambda tree: _stage(tree, "deploy_dev").pop("condition"),
    (check_main_deploys_to_dev, "gitlab"): lambda tree: tree["deploy-dev"].update(stage="test"),
    (check_tag_deploys_to_prod_through_a_gate, "github"): lambda tree: tree["jobs"]["deploy-prod"].pop(
        "environment"
    ),
    (check_tag_deploys_to_prod_through_a_gate, "azure"): lambda tree: _stage(tree, "deploy_prod")["jobs"][
        0
    ].pop("environment"),
    (check_tag_deploys_to_prod_through_a_gate, "gitlab"): lambda tree: tree["deploy-prod"]["rules"][0].update(
        {"if": "$CI_COMMIT_TAG"}
    ),
    (check_actions_are_pinned, "github"): lambda tree: tree["jobs"]["test"]["steps"][0].update(
        uses="actions/checkout@v7"
    ),
    (check_actions_are_pinned, "azure"): lambda tree: _steps(tree, "test").append(
        {"task": "UsePythonVersion@0"}
    ),
    (check_cli_has_version_and_checksum, "github"): lambda tree: _replace_cli(
        tree["jobs"]["deploy-prod"]["steps"], "run"
    ),
    (check_cli_has_version_and_checksum, "azure"): lambda tree: _replace_cli(
        _steps(tree, "deploy_dev"), "script"
    ),
    (check_cli_has_version_and_checksum, "gitlab"): lambda tree: tree[".with-identity"]["before_script"].pop(
        2
    ),
    (check_no_script_is_piped_into_a_shell, "github"): lambda tree: tree["jobs"]["deploy-dev"][
        "steps"
    ].append({"run": PIPED}),
    (check_no_script_is_piped_into_a_shell, "azure"): lambda tree: _steps(tree, "validate").append(
        {"script": PIPED}
    ),
    (check_no_script_is_piped_into_a_shell, "gitlab"): lambda tree: tree["test"]["script"].append(PIPED),
    (check_checkout_keeps_no_token, "github"): lambda tree: tree["jobs"]["validate"]["steps"][0].pop("with"),
    (check_checkout_keeps_no_token, "azure"): lambda tree: _steps(tree, "validate")[0].update(
        persistCredentials=True
    ),
}
"""A change of each file that breaks a rule. GitLab has no actions, and its checkout keeps no token."""


@pytest.mark.parametrize(
    ("rule", "system"),
    COUNTER_EXAMPLES,
    ids=[f"{rule.__name__}-{system}" for rule, system in COUNTER_EXAMPLES],
)
def test_rule_finds_its_violation(trees: dict[str, list[dict[Any, Any]]], rule: Rule, system: str) -> None:
    broken = deepcopy(trees[system][0])
    COUNTER_EXAMPLES[rule, system](broken)
    assert rule(system, read_jobs(system, broken)) != []


def test_each_rule_has_counter_examples() -> None:
    gitlab_has_none = {check_actions_are_pinned, check_checkout_keeps_no_token}
    expected = {(rule, system) for rule in RULES for system in SYSTEMS}
    assert COUNTER_EXAMPLES.keys() == expected - {(rule, "gitlab") for rule in gitlab_has_none}
