from __future__ import annotations

import re
import shutil
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from tests import conditions

from tableferry.fleet.jobs.job import Job, TargetFormat
from tableferry.fleet.jobs.record import JobRecord
from tableferry.fleet.notifications.drafts import Audience
from tableferry.fleet.notifications.texts import BUILT_IN, Templates
from tableferry.fleet.settings import MailSettings

NOW = datetime(2026, 11, 22, 23, 30, tzinfo=UTC)
OWNER: Audience = "owner"
EVERY: list[tuple[int, Audience]] = [
    (1, "owner"),
    (1, "user"),
    (2, "owner"),
    (2, "user"),
    (3, "owner"),
    (3, "user"),
]


def job(task_id: int = 1, name: str = "orders", catalog: str = "spark_catalog", **more: Any) -> Job:
    return Job(
        task_id,
        catalog,
        "sales",
        name,
        created_at=NOW,
        last_updated_time=NOW,
        **{"probation_gap_days": 10, **more},
    )


@pytest.fixture(scope="module")
def templates() -> Templates:
    mail = MailSettings(contact="data-platform@corp.example", portal="https://go.example/migration")
    return Templates(mail)


class Page(HTMLParser):
    """The words and links of a page; requires that its elements are closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words = ""
        self.links: list[str] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [str(value) for name, value in attrs if name in ("href", "src")]
        if tag not in ("meta", "wbr"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize(("level", "audience"), EVERY)
def test_text_and_html_contain_the_same_sentences(
    templates: Templates, level: int, audience: Audience
) -> None:
    for jobs in ([job()], [job(), job(2, "returns", initial_gap_days=7, probation_gap_days=0)]):
        words = templates.words(level, audience, jobs, NOW)
        page, text = flat(Page(words.html).words), flat(words.text)
        sentences = re.findall(r"[A-Z][^.:]{30,}[.:]", re.sub(r" -+ | - |Hello, ", ". ", text))
        shown = [sentence for sentence in sentences if not re.search("https|Hive table:|Days of", sentence)]
        assert len(shown) >= 5
        assert [sentence for sentence in shown if sentence not in page] == []
        assert words.subject in page


@pytest.mark.parametrize(("level", "audience"), EVERY)
def test_notification_about_a_delta_job_names_only_delta(
    templates: Templates, level: int, audience: Audience
) -> None:
    words = templates.words(level, audience, [job(target_format=TargetFormat.DELTA)], NOW)
    assert words.subject.startswith("[Hive to Delta migration] ")
    assert "iceberg" not in (words.subject + words.text + words.html).lower()
    assert "in the Delta format" in flat(words.text)


@pytest.mark.parametrize(("level", "audience"), EVERY)
def test_notification_about_both_formats_lists_the_format_of_each_table(
    templates: Templates, level: int, audience: Audience
) -> None:
    words = templates.words(level, audience, [job(target_format=TargetFormat.DELTA), job(2, "returns")], NOW)
    assert words.subject.startswith("[Hive to Iceberg and Delta migration] 2 of ")
    listed = flat(words.text)
    assert re.search(
        r"sales\.orders (Becomes|Is now): Delta .*sales\.returns (Becomes|Is now): Iceberg", listed
    )


def test_first_notification_contains_the_day_and_the_pause_command(templates: Templates) -> None:
    words = templates.words(1, OWNER, [job()], NOW)
    assert words.subject == "[Hive to Iceberg migration] sales.orders, from 6 December 2026 on"
    text = flat(words.text)
    assert "The migration begins on 6 December 2026 or later." in text
    assert "probation lasts 10 days" in text
    assert "as sales.orders_hive" in text
    assert "\n    tableferry fleet pause spark_catalog.sales.orders\n" in words.text
    assert "tell us before that day: write to data-platform@corp.example" in text
    assert "https://go.example/migration" in text


def test_different_days_are_listed_with_their_tables(templates: Templates) -> None:
    jobs = [job(), job(2, "returns", initial_gap_days=30)]
    text = flat(templates.words(1, OWNER, jobs, NOW).text)
    assert "sales.orders Not before: 6 December 2026 sales.returns Not before: 22 December 2026" in text


def test_notification_about_a_table_without_probation_warns_of_late_files(templates: Templates) -> None:
    text = flat(templates.words(1, OWNER, [job(probation_gap_days=0)], NOW).text)
    assert "There is no probation" in text
    assert "files that are written to its old directory after the switch are reported for a week" in text
    assert "sales.orders_hive_archived" in text


@pytest.mark.parametrize(("level", "audience"), [each for each in EVERY if each[0] < 3])
def test_notification_warns_of_a_hive_table_that_shares_its_files(
    templates: Templates, level: int, audience: Audience
) -> None:
    shared = job(target_format=TargetFormat.DELTA)
    others = [
        job(2, "returns"),
        job(3, "logs", target_format=TargetFormat.DELTA, record=JobRecord(rewritten={})),
    ]
    warning = "an INSERT OVERWRITE makes the Delta table unreadable"
    assert warning not in flat(templates.words(level, audience, others, NOW).text)
    assert warning in flat(templates.words(level, audience, [shared], NOW).text)
    text = flat(templates.words(level, audience, [shared, *others], NOW).text)
    assert "The Hive table of sales.orders then reads the files of the Delta table. Don't read it" in text


@pytest.mark.parametrize("audience", ["owner", "user"])
def test_first_notification_lists_rewritten_tables(templates: Templates, audience: Audience) -> None:
    stays, text, csv = (
        job(),
        job(2, "clicks", record=JobRecord(rewritten={})),
        job(3, "logs", record=JobRecord(rewritten={})),
    )

    def told(*jobs: Job) -> str:
        return flat(templates.words(1, audience, jobs, NOW).text)

    assert "No data file is rewritten or moved: the Iceberg table is created over the existing files" in told(
        stays
    )
    assert (
        "The rows of the table are rewritten as Parquet files. Then only the Hive table reads the existing"
        in told(text)
    )
    assert "The rows of the tables are rewritten as Parquet" in told(text, csv)
    assert "No data file" not in told(text, csv)
    assert (
        "The rows of sales.clicks, sales.logs are rewritten as Parquet files. "
        "Then only the Hive tables read the existing files. No data file of the others is rewritten or moved"
    ) in told(stays, text, csv)


def test_second_notification_contains_the_end_of_probation_and_the_revert_command(
    templates: Templates,
) -> None:
    words = templates.words(2, OWNER, [job(catalog="hive_metastore")], NOW)
    assert words.subject.endswith("hive_metastore.sales.orders is on probation until 2 December 2026")
    assert "Hive table: hive_metastore.sales.orders_hive" in words.text
    assert "\n    tableferry fleet revert hive_metastore.sales.orders\n" in words.text


def test_third_notification_names_the_archived_hive_table(templates: Templates) -> None:
    words = templates.words(3, OWNER, [job()], NOW)
    assert words.subject == "[Hive to Iceberg migration] sales.orders is migrated"
    assert "Archived Hive table: sales.orders_hive_archived" in words.text
    assert "they are reported for a week after this e-mail. Later files aren't reported" in flat(words.text)


@pytest.mark.parametrize(("level", "audience"), EVERY)
def test_notification_without_contact_asks_for_a_reply(level: int, audience: Audience) -> None:
    words = Templates(MailSettings()).words(level, audience, [job()], NOW)
    assert "Questions? Reply to this e-mail." in words.text
    assert Page(words.html).links == []


def test_html_escapes_table_names(templates: Templates) -> None:
    words = templates.words(1, OWNER, [job(name="<b>a & b</b>")], NOW)
    assert "<b>" not in words.html
    assert "sales.<b>a & b</b>" in flat(Page(words.html).words).replace("`", "")


def test_lines_of_text_fit_a_terminal(templates: Templates) -> None:
    long = [job(number, "a_table_with_a_name_" * 5 + str(number)) for number in range(3)]
    for level, audience in EVERY:
        lines = templates.words(level, audience, long, NOW).text.splitlines()
        assert [line for line in lines if len(line) > 78 and "a_table_with" not in line] == []


def test_team_template_replaces_one_built_in_template(tmp_path: Path) -> None:
    (tmp_path / "layout.txt.j2").write_text(
        "Liebe Leute,\n{% block opening %}{% endblock %}\nGrüße\n", "utf-8"
    )
    (tmp_path / ".gitignore").write_text("")
    words = Templates(MailSettings(templates=tmp_path)).words(1, OWNER, [job()], NOW)
    assert words.text.startswith("Liebe Leute,\nYou are an owner")
    assert words.text.endswith("Grüße\n")
    assert "What changes" in words.html


def test_copies_of_the_built_in_templates_give_the_same_words(templates: Templates, tmp_path: Path) -> None:
    copies = Path(shutil.copytree(BUILT_IN, tmp_path / "copies"))
    mail = MailSettings(
        contact="data-platform@corp.example", portal="https://go.example/migration", templates=copies
    )
    for level, audience in EVERY:
        words = templates.words(level, audience, [job()], NOW)
        assert Templates(mail).words(level, audience, [job()], NOW) == words


def test_unknown_file_or_missing_folder_of_templates_is_refused(tmp_path: Path) -> None:
    (tmp_path / "level1_owners.j2").write_text("")
    with conditions.raises("NOTIFICATION_TEMPLATE_UNKNOWN", file=tmp_path / "level1_owners.j2"):
        Templates(MailSettings(templates=tmp_path))
    with conditions.raises("NOTIFICATION_TEMPLATE_FOLDER_MISSING", folder=tmp_path / "nowhere"):
        Templates(MailSettings(templates=tmp_path / "nowhere"))


BODY = "{% extends layout %}\n{% block subject %}s{% endblock %}\n{% block opening %}\n"


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("{{ tabels }}", 4, "'tabels' is undefined"),
        ("\n{{ tables[0].nmae }}", 5, "no attribute 'nmae'"),
        ("{{ tables[7].name }}", 4, "no element 7"),
        ("{{ 1 / 0 }}", 4, "division by zero"),
        ("{{ tables.__class__.__mro__ }}", 4, "unsafe"),
        ("{% include 'nothing.j2' %}", 4, "nothing.j2"),
    ],
)
def test_template_that_fails_is_reported_with_file_and_line(
    tmp_path: Path, text: str, line: int, reason: str
) -> None:
    file = tmp_path / "level2_user.j2"
    file.write_text(f"{BODY}{text}\n{{% endblock %}}\n")
    with conditions.raises(
        "NOTIFICATION_TEMPLATE_FAILED", place=f"{file}:{line}", reason=re.compile(re.escape(reason))
    ):
        Templates(MailSettings(templates=tmp_path)).words(2, "user", [job()], NOW)


@pytest.mark.parametrize(
    ("text", "reason"),
    [("{% if %}", "Expected an expression"), ("{{ tables|shorten }}", "No filter named 'shorten'")],
)
def test_template_that_cannot_be_compiled_is_refused_before_its_level_is_due(
    tmp_path: Path, text: str, reason: str
) -> None:
    file = tmp_path / "level3_user.j2"
    file.write_text(f"{BODY}{text}\n{{% endblock %}}\n")
    with conditions.raises(
        "NOTIFICATION_TEMPLATE_FAILED", place=f"{file}:4", reason=re.compile(re.escape(reason))
    ):
        Templates(MailSettings(templates=tmp_path))


def test_template_without_subject_is_refused(tmp_path: Path) -> None:
    (tmp_path / "level1_owner.j2").write_text("{% extends layout %}\n")
    with conditions.raises("NOTIFICATION_TEMPLATE_WITHOUT_SUBJECT", file=tmp_path / "level1_owner.j2"):
        Templates(MailSettings(templates=tmp_path)).words(1, OWNER, [job()], NOW)


def test_template_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "layout.txt.j2").write_bytes(b"Gr\xfc\xdfe")
    with conditions.raises("NOTIFICATION_TEMPLATE_NOT_UTF8", file=tmp_path / "layout.txt.j2"):
        Templates(MailSettings(templates=tmp_path))
