"""Whatever is done to a good bundle, it's told what is wrong; what others need is missed when it's gone."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.bundle_files import EXAMPLE, JOB, PIPELINE, PROJECT, ROOT, SCHEMA, VOLUME, BundleFiles

from tableferry import report

WORDS = [
    "",
    "~",
    "x" * 300,
    "\0",
    "..",
    "../..",
    "/",
    "*",
    "[",
    "**",
    "../**",
    "a/**",
    "-e ..",
    "-r",
    "./x.whl",
    "${var.catalog}",
    "${var.nothing}",
    "${var.cluster}",
    "${resources.jobs.nightly.id}",
    "${resources.jobs.nightly.tasks[9].x}",
    "${bundle.name}",
    "${bundle.target.x}",
    "${workspace.file_path}/../x",
    "${",
    "$${var.x}",
    "${var.catalog",
    "0 0 0 ? * *",
    "GMT+1",
    "whl",
    "complex",
    "production",
]
FILES = [ROOT, JOB, PIPELINE, SCHEMA, VOLUME]
# JSON is YAML, and is read and written faster.
WRITTEN = {file: json.dumps(yaml.safe_load((EXAMPLE / file).read_text("utf-8"))) for file in FILES}
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)


def containers(value: Any) -> Iterator[Any]:
    """Every list and mapping in a value that has something in it."""
    if isinstance(value, dict | list) and value:
        yield value
        for item in value.values() if isinstance(value, dict) else value:
            yield from containers(item)


@st.composite
def mutation(draw: st.DrawFn) -> Any:
    """A function that spoils one place of a file."""
    where, which = draw(st.floats(0, 1)), draw(st.floats(0, 1))
    how = draw(st.sampled_from(["drop", "rename", "set", "twice"]))
    value, name = draw(VALUES), draw(st.text(max_size=5) | st.sampled_from(WORDS))

    def spoil(written: Any) -> None:
        places = list(containers(written))
        if not places:
            return
        container = places[min(int(where * len(places)), len(places) - 1)]
        keys = list(container) if isinstance(container, dict) else list(range(len(container)))
        key = keys[min(int(which * len(keys)), len(keys) - 1)]
        if how == "drop":
            del container[key]
        elif how == "rename" and isinstance(container, dict):
            container[name] = container.pop(key)
        elif how == "twice" and isinstance(container, list):
            container.append(container[key])
        else:
            container[key] = value

    return spoil


@given(
    file=st.sampled_from(FILES),
    spoils=st.lists(mutation(), min_size=1, max_size=3),
)
def test_a_spoilt_bundle_is_checked(file: str, spoils: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        shop = BundleFiles.copy_to(Path(folder) / "shop")
        written = json.loads(WRITTEN[file])
        for spoil in spoils:
            spoil(written)
        shop.write(file, json.dumps(written))
        check(shop)


@given(
    file=st.sampled_from([ROOT, JOB, PROJECT, "src/shop/cli.py"]),
    content=st.binary(max_size=40) | st.text(max_size=40).map(lambda text: text.encode("utf-8")),
)
def test_any_bytes_are_told(file: str, content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        shop = BundleFiles.copy_to(Path(folder) / "shop")
        (shop.root / file).write_bytes(content)
        assert check(shop)


def check(shop: BundleFiles) -> int:
    """Check a bundle, and that what is reported can be read, printed and sorted."""
    problems = shop.problems()
    assert list(problems) == sorted(set(problems))
    for problem in problems:
        assert problem.file
        assert problem.what
        assert problem.remedy
        assert "\n" not in str(problem)
    assert len(json.loads(report.as_json(problems))) == len(problems)
    return len(problems)


def cut(file: str, *keys: str | int) -> Any:
    """A function that takes a key out of a file."""

    def remove(shop: BundleFiles) -> None:
        written = yaml.safe_load((shop.root / file).read_text("utf-8"))
        inside = written
        for key in keys[:-1]:
            inside = inside[key]
        del inside[keys[-1]]
        shop.write(file, json.dumps(written))

    return remove


def gone(path: str) -> Any:
    """A function that removes a file or folder."""
    return lambda shop: shop.remove(path) if (shop.root / path).exists() else None


NIGHTLY = ("resources", "jobs", "nightly")
# Everything that something else in the bundle refers to; the job, to which nothing does, stays.
NEEDED = {
    "schema": gone(SCHEMA),
    "volume": gone(VOLUME),
    "pipeline": gone(PIPELINE),
    "notebook": gone("src/notebooks/report.py"),
    "folder of notebooks": gone("src/notebooks"),
    "query": gone("src/queries/totals.sql"),
    "transformation": gone("src/transformations/orders.sql"),
    "folder of transformations": gone("src/transformations"),
    "module": gone("src/shop/cli.py"),
    "package": gone("src/shop"),
    "sources": gone("src"),
    "project": gone(PROJECT),
    "artifact": cut(ROOT, "artifacts", "wheel"),
    "artifacts": cut(ROOT, "artifacts"),
    "includes": cut(ROOT, "include"),
    "variable of text": cut(ROOT, "variables", "catalog"),
    "variable of a mapping": cut(ROOT, "variables", "cluster"),
    "value": cut(ROOT, "targets", "prod", "variables", "catalog"),
    "first task": cut(JOB, *NIGHTLY, "tasks", 0),
    "environment": cut(JOB, *NIGHTLY, "environments", 0),
    "environments": cut(JOB, *NIGHTLY, "environments"),
    "cluster": cut(JOB, *NIGHTLY, "job_clusters", 0),
}


@pytest.mark.parametrize("name", NEEDED)
def test_what_is_needed_is_missed(shop: BundleFiles, name: str) -> None:
    NEEDED[name](shop)
    assert check(shop)


# Of each of these, taken out in any company, somebody who needs it is left.
@given(names=st.sets(st.sampled_from([name for name in NEEDED if "environment" not in name]), min_size=2))
def test_whatever_is_needed_is_missed_in_company(names: set[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        shop = BundleFiles.copy_to(Path(folder) / "shop")
        try:
            for name in sorted(names, key=list(NEEDED).index):
                NEEDED[name](shop)
        except KeyError:
            assert {"artifact", "artifacts"} <= names
        assert check(shop)
