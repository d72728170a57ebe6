from __future__ import annotations

import re
import sys
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from tests import conditions

from tableferry.errors import InputError
from tableferry.fleet.job import REWRITTEN, Job, TargetFormat
from tableferry.fleet.notifications.drafts import Audience
from tableferry.fleet.notifications.texts import OURS, Templates
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
    """What a reader sees of a page, and whether its elements are closed in order."""

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
def test_text_and_page_say_the_same(templates: Templates, level: int, audience: Audience) -> None:
    for jobs in ([job()], [job(), job(2, "returns", initial_gap_days=7, probation_gap_days=0)]):
        words = templates.words(level, audience, jobs, NOW)
        page, text = flat(Page(words.html).words), flat(words.text)
        sentences = re.findall(r"[A-Z][^.:]{30,}[.:]", re.sub(r" -+ | - |Hello, ", ". ", text))
        shown = [sentence for sentence in sentences if not re.search("https|Hive table:|Days of", sentence)]
        assert len(shown) >= 5
        assert [sentence for sentence in shown if sentence not in page] == []
        assert words.subject in page


@pytest.mark.parametrize(("level", "audience"), EVERY)
def test_a_notification_about_a_delta_job_never_says_iceberg(
    templates: Templates, level: int, audience: Audience
) -> None:
    words = templates.words(level, audience, [job(target_format=TargetFormat.DELTA)], NOW)
    assert words.subject.startswith("[Hive to Delta migration] ")
    assert "iceberg" not in (words.subject + words.text + words.html).lower()
    assert "in the Delta format" in flat(words.text)


@pytest.mark.parametrize(("level", "audience"), EVERY)
def test_a_notification_about_both_formats_says_which_is_whose(
    templates: Templates, level: int, audience: Audience
) -> None:
    words = templates.words(level, audience, [job(target_format=TargetFormat.DELTA), job(2, "returns")], NOW)
    assert words.subject.startswith("[Hive to Iceberg and Delta migration] 2 of ")
    listed = flat(words.text)
    assert re.search(
        r"sales\.orders (Becomes|Is now): Delta .*sales\.returns (Becomes|Is now): Iceberg", listed
    )


def test_the_first_notification_tells_the_day_and_how_to_wait(templates: Templates) -> None:
    words = templates.words(1, OWNER, [job()], NOW)
    assert words.subject == "[Hive to Iceberg migration] sales.orders, from 6 December 2026 on"
    text = flat(words.text)
    assert "The migration begins on 6 December 2026 or later." in text
    assert "a probation of 10 days" in text
    assert "as sales.orders_hive" in text
    assert "\n    tableferry fleet pause spark_catalog.sales.orders\n" in words.text
    assert "say so before that day to data-platform@corp.example" in text
    assert "https://go.example/migration" in text


def test_tables_with_days_of_their_own_have_them_beside_their_names(templates: Templates) -> None:
    jobs = [job(), job(2, "returns", initial_gap_days=30)]
    text = flat(templates.words(1, OWNER, jobs, NOW).text)
    assert "sales.orders Not before: 6 December 2026 sales.returns Not before: 22 December 2026" in text


def test_a_table_without_probation_is_told_so(templates: Templates) -> None:
    text = flat(templates.words(1, OWNER, [job(probation_gap_days=0)], NOW).text)
    assert "There is no probation" in text
    assert "files that come into its old directory after the switch are noticed for a week" in text
    assert "sales.orders_hive_archived" in text


@pytest.mark.parametrize(("level", "audience"), [each for each in EVERY if each[0] < 3])
def test_notification_warns_of_a_hive_table_that_shares_its_files(
    templates: Templates, level: int, audience: Audience
) -> None:
    shared = job(target_format=TargetFormat.DELTA)
    others = [job(2, "returns"), job(3, "logs", target_format=TargetFormat.DELTA, record={REWRITTEN: {}})]
    warning = "an INSERT OVERWRITE makes the Delta table unreadable"
    assert warning not in flat(templates.words(level, audience, others, NOW).text)
    assert warning in flat(templates.words(level, audience, [shared], NOW).text)
    text = flat(templates.words(level, audience, [shared, *others], NOW).text)
    assert "The Hive table of sales.orders reads the files of the Delta table then. Don't read it" in text


@pytest.mark.parametrize("audience", ["owner", "user"])
def test_whose_files_stay_is_told_before(templates: Templates, audience: Audience) -> None:
    stays, text, csv = job(), job(2, "clicks", record={REWRITTEN: {}}), job(3, "logs", record={REWRITTEN: {}})

    def told(*jobs: Job) -> str:
        return flat(templates.words(1, audience, jobs, NOW).text)

    assert "No data file is rewritten or moved: the Iceberg table is made over the files" in told(stays)
    assert "The rows of the table are rewritten as Parquet, beside the files that are there" in told(text)
    assert "The rows of the tables are rewritten as Parquet" in told(text, csv)
    assert "No data file" not in told(text, csv)
    assert (
        "The rows of sales.clicks, sales.logs are rewritten as Parquet, beside the files that are there, "
        "which only the Hive tables will read. No data file of the others is rewritten or moved"
    ) in told(stays, text, csv)


def test_the_second_notification_tells_the_end_of_probation_and_how_to_revert(templates: Templates) -> None:
    words = templates.words(2, OWNER, [job(catalog="hive_metastore")], NOW)
    assert words.subject.endswith("hive_metastore.sales.orders is on probation until 2 December 2026")
    assert "Hive table: hive_metastore.sales.orders_hive" in words.text
    assert "\n    tableferry fleet revert hive_metastore.sales.orders\n" in words.text


def test_the_third_notification_tells_where_the_hive_table_is(templates: Templates) -> None:
    words = templates.words(3, OWNER, [job()], NOW)
    assert words.subject == "[Hive to Iceberg migration] sales.orders is migrated"
    assert "Archived Hive table: sales.orders_hive_archived" in words.text
    assert "is noticed for a week after this letter; later nobody looks" in flat(words.text)


@pytest.mark.parametrize(("level", "audience"), EVERY)
def test_without_a_contact_the_notification_itself_is_answered(level: int, audience: Audience) -> None:
    words = Templates(MailSettings()).words(level, audience, [job()], NOW)
    assert "Questions? Answer this letter." in words.text
    assert Page(words.html).links == []


def test_what_a_table_is_called_is_no_markup(templates: Templates) -> None:
    words = templates.words(1, OWNER, [job(name="<b>a & b</b>")], NOW)
    assert "<b>" not in words.html
    assert "sales.<b>a & b</b>" in flat(Page(words.html).words).replace("`", "")


def test_lines_of_text_fit_a_terminal(templates: Templates) -> None:
    long = [job(number, "a_table_with_a_name_" * 5 + str(number)) for number in range(3)]
    for level, audience in EVERY:
        lines = templates.words(level, audience, long, NOW).text.splitlines()
        assert [line for line in lines if len(line) > 78 and "a_table_with" not in line] == []


def test_a_team_replaces_one_template_and_keeps_the_rest(tmp_path: Path) -> None:
    (tmp_path / "layout.txt.j2").write_text(
        "Liebe Leute,\n{% block opening %}{% endblock %}\nGrüße\n", "utf-8"
    )
    (tmp_path / ".gitignore").write_text("")
    words = Templates(MailSettings(templates=tmp_path)).words(1, OWNER, [job()], NOW)
    assert words.text.startswith("Liebe Leute,\nYou are an owner")
    assert words.text.endswith("Grüße\n")
    assert "What changes" in words.html


@pytest.mark.parametrize("file", sorted(OURS.glob("*.j2")), ids=lambda file: file.name)
def test_a_template_of_ours_can_be_copied_and_changed(
    file: Path, templates: Templates, tmp_path: Path
) -> None:
    """Names that it imports at its beginning are known in its blocks."""
    text = file.read_text("utf-8")
    (tmp_path / file.name).write_text(text, "utf-8")
    mail = MailSettings(
        contact="data-platform@corp.example", portal="https://go.example/migration", templates=tmp_path
    )
    own = Templates(mail)
    for level, audience in EVERY:
        assert own.words(level, audience, [job()], NOW) == templates.words(level, audience, [job()], NOW)


@pytest.mark.parametrize(
    "given",
    [
        "{% import 'naming.j2' as said %}",
        "{% from 'naming.j2' import files as said %}",
        "{% set said = 'x' %}",
        "{% macro said() %}x{% endmacro %}",
    ],
)
def test_a_block_knows_what_its_template_gives(given: str, tmp_path: Path) -> None:
    block = "{% block opening %}{% if said %}We said so.{% endif %}{% endblock %}"
    (tmp_path / "level1_owner.j2").write_text(
        "{% extends layout %}" + given + "{% block subject %}s{% endblock %}" + block
    )
    assert "We said so." in Templates(MailSettings(templates=tmp_path)).words(1, OWNER, [job()], NOW).text


def test_a_file_that_is_no_template_of_ours_is_refused(tmp_path: Path) -> None:
    (tmp_path / "level1_owners.j2").write_text("")
    misspelled = tmp_path / "level1_owners.j2"
    with conditions.raises("NOTIFICATION_TEMPLATE_MISSPELLED", file=misspelled, closest="level1_owner.j2"):
        Templates(MailSettings(templates=tmp_path))
    misspelled.rename(tmp_path / "notes.txt")
    with conditions.raises("NOTIFICATION_TEMPLATE_UNKNOWN", file=tmp_path / "notes.txt"):
        Templates(MailSettings(templates=tmp_path))
    with conditions.raises("NOTIFICATION_TEMPLATE_FOLDER_MISSING", folder=tmp_path / "nowhere"):
        Templates(MailSettings(templates=tmp_path / "nowhere"))


BODY = "{% extends layout %}\n{% block subject %}s{% endblock %}\n{% block opening %}\n"


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        (
            "{% if level == 7 %}{{ tabels }}{% endif %}",
            4,
            "'tabels' is undefined.\nUse one of these variables: audience",
        ),
        ("\n{{ tables[0].nmae }}", 5, "no attribute 'nmae'"),
        ("{{ tables[7].name }}", 4, "no element 7"),
        ("{{ 1 / 0 }}", 4, "division by zero"),
        ("{{ tables.__class__.__mro__ }}", 4, "unsafe"),
        ("{% include 'nothing.j2' %}", 4, "nothing.j2"),
        ("{% if %}", 4, "Expected an expression"),
        ("{{ tables|shorten }}", 4, "No filter named 'shorten'"),
    ],
)
def test_a_template_that_cannot_be_rendered_is_refused_with_file_and_line(
    tmp_path: Path, text: str, line: int, why: str
) -> None:
    file = tmp_path / "level2_user.j2"
    file.write_text(f"{BODY}{text}\n{{% endblock %}}\n")
    with pytest.raises(InputError) as refused:
        Templates(MailSettings(templates=tmp_path))
    assert refused.value.message.startswith(f"{file}:{line}: ")
    assert why in str(refused.value)


def test_a_notification_without_a_subject_is_refused(tmp_path: Path) -> None:
    (tmp_path / "level1_owner.j2").write_text("{% extends layout %}\n")
    with conditions.raises("NOTIFICATION_TEMPLATE_WITHOUT_SUBJECT", file=tmp_path / "level1_owner.j2"):
        Templates(MailSettings(templates=tmp_path))


def test_a_template_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "layout.txt.j2").write_bytes(b"Gr\xfc\xdfe")
    with conditions.raises("NOTIFICATION_TEMPLATE_NOT_UTF8", file=tmp_path / "layout.txt.j2"):
        Templates(MailSettings(templates=tmp_path))


def test_the_templates_lie_in_the_package() -> None:
    package = Path(sys.modules["tableferry.fleet.notifications.texts"].__file__ or "").parent
    assert OURS.parent == package
    assert len(list(OURS.glob("*.j2"))) == 12
