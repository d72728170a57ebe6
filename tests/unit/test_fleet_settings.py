"""A fleet's settings: their precedence, and the messages for invalid values."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tableferry.errors import SpecError
from tableferry.fleet.jobs.job import OldName, TargetFormat
from tableferry.fleet.settings import FleetSettings
from tableferry.fleet.settings_file import load

WRITTEN = """\
store: postgresql+psycopg://db.example/fleet
target_format: delta
initial_gap_days: 7
mail:
  host: mail.example
  sender: data@tea.example
  templates: words
environments:
  dev:
  prod:
    initial_gap_days: 14
    mail:
      host: mail.prod.example
      port: 587
      tls: starttls
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def problems(
    text: str | None = None,
    *,
    flags: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
    env: str | None = None,
) -> list[str]:
    if text is not None:
        Path("fleet.yml").write_text(text, encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        load(flags, env=env, environ=environ or {})
    return [str(problem) for problem in caught.value.problems]


def test_defaults_apply_without_settings(here: Path) -> None:
    assert load(environ={}) == FleetSettings()


def test_environment_section_overrides_only_its_keys(here: Path) -> None:
    (here / "fleet.yml").write_text(WRITTEN)

    plain, prod = load(env="dev", environ={}), load(env="prod", environ={})

    assert (plain.initial_gap_days, plain.mail.host, plain.mail.port) == (7, "mail.example", 25)
    assert (prod.initial_gap_days, prod.mail.host, prod.mail.port) == (14, "mail.prod.example", 587)
    assert prod.mail.sender == plain.mail.sender == "data@tea.example"
    assert prod.target_format is TargetFormat.DELTA


def test_flags_override_variables_and_variables_override_the_file(here: Path) -> None:
    (here / "fleet.yml").write_text(WRITTEN)
    environ = {
        "TABLEFERRY_FLEET_ENV": "prod",
        "TABLEFERRY_FLEET_INITIAL_GAP_DAYS": "3",
        "TABLEFERRY_FLEET_MAIL_HOST": "mail.env.example",
        "TABLEFERRY_FLEET_MAIL_PASSWORD": "s3cret",
        "TABLEFERRY_FLEET_REQUIRE_OWNER": "true",
        "TABLEFERRY_WAREHOUSE": "somewhere",
    }

    settings = load({"initial_gap_days": "0", "mail.batch": "10"}, environ=environ)

    assert settings.initial_gap_days == 0
    assert settings.mail.host == "mail.env.example"
    assert (settings.mail.batch, settings.mail.port) == (10, 587)
    assert settings.require_owner is True
    assert settings.mail.password.get_secret_value() == "s3cret"
    assert "s3cret" not in repr(settings)


def test_file_is_named_by_a_flag_or_a_variable(here: Path) -> None:
    (here / "fleet.yml").write_text("lease_minutes: 1")
    (here / "conf").mkdir()
    (here / "conf" / "ours.yml").write_text(
        "lease_minutes: 2\nusers_file: users.csv\nmail: {templates: words}"
    )
    (here / "other.yml").write_text("lease_minutes: 3")
    environ = {"TABLEFERRY_FLEET_SETTINGS": "conf/ours.yml"}

    assert load(environ={}).lease_minutes == 1
    assert load(environ=environ).lease_minutes == 2
    assert load(environ=environ).mail.templates == here / "conf" / "words"
    assert load(environ=environ).users_file == here / "conf" / "users.csv"
    assert load(file=Path("other.yml"), environ=environ).lease_minutes == 3


def test_every_unknown_key_is_reported_with_its_place(here: Path) -> None:
    text = "stoer: x\nmail: {hots: y}\nenvironments: {prod: {mail: {sendr: red}}}"
    environ = {"TABLEFERRY_FLEET_MAIL_HOTS": "z", "TABLEFERRY_FLEET_STORE": "sqlite://"}

    assert problems(text, flags={"mail.prot": "1"}, environ=environ) == [
        "--set mail.prot: unknown: did you mean mail.port?",
        "TABLEFERRY_FLEET_MAIL_HOTS: unknown variable: did you mean TABLEFERRY_FLEET_MAIL_HOST?",
        "fleet.yml: environments.prod.mail.sendr: unknown: did you mean sender?",
        "fleet.yml: mail.hots: unknown: did you mean host?",
        "fleet.yml: stoer: unknown: did you mean store?",
    ]


def test_overridden_invalid_value_is_reported(here: Path) -> None:
    reported = problems(
        "target_format: parquet\nmail: {port: 0}\nenvironments: {dev: {mail: text}}",
        flags={"target_format": "delta", "initial_gap_days": "-1"},
        environ={"TABLEFERRY_FLEET_MAIL_PORT": "25", "TABLEFERRY_FLEET_LEASE_MINUTES": "long"},
    )
    assert reported == [
        "--set initial_gap_days: should be greater than or equal to 0, but is '-1'",
        "TABLEFERRY_FLEET_LEASE_MINUTES: should be a valid integer, unable to parse string as an integer, "
        "but is 'long'",
        "fleet.yml: environments.dev.mail: must be a mapping of settings to their values",
        "fleet.yml: mail.port: should be greater than or equal to 1, but is 0",
        "fleet.yml: target_format: should be 'iceberg' or 'delta', but is 'parquet'",
    ]


@pytest.mark.parametrize("text", ["mail: {password: x}", "environments: {dev: {mail: {password: x}}}"])
def test_password_in_a_file_is_refused_and_not_shown(here: Path, text: str) -> None:
    (report,) = problems(text.replace("x", "h4nter"))
    assert "mail.password: a file must not contain a password: set TABLEFERRY_FLEET_MAIL_PASSWORD" in report
    assert "h4nter" not in report


def test_password_on_the_command_line_is_refused_and_not_shown(here: Path) -> None:
    (report,) = problems(flags={"mail.password": "h4nter"})
    assert report == "--set mail.password: a command line isn't secret: set TABLEFERRY_FLEET_MAIL_PASSWORD"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "fleet.yml: isn't valid YAML: "),
        ("- store", "fleet.yml: must contain a mapping of settings to their values"),
        ("environments: [dev]", "fleet.yml: environments: must be a mapping of names to settings"),
        ("environments: {dev: 3}", "fleet.yml: environments.dev: must be a mapping of settings"),
        ("lease_minutes: 1\nlease_minutes: 2", "fleet.yml: lease_minutes: is repeated: keep one"),
        ("mail: {port: 1, port: 2}", "fleet.yml: mail.port: is repeated: keep one"),
        ("mail: &mail {again: *mail}", "fleet.yml: mail.again: unknown: known are host"),
        ("initial_gap_days: 36501", "fleet.yml: initial_gap_days: should be less than or equal to 36500"),
        ("probation_gap_days: 36501", "fleet.yml: probation_gap_days: should be less than or equal to 36500"),
        ("lease_minutes: 99999999999999", "fleet.yml: lease_minutes: should be less than or equal to"),
        ("stuck_hours: 99999999999999", "fleet.yml: stuck_hours: should be less than or equal to"),
        ("a: " + "[" * 200 + "]" * 200, "fleet.yml: is nested deeper than 100 levels"),
    ],
)
def test_invalid_settings_file_is_reported(here: Path, text: str, message: str) -> None:
    assert problems(text)[0].startswith(message)


def test_unreadable_settings_file_is_reported(here: Path) -> None:
    with pytest.raises(SpecError, match=r"none\.yml: can't be read \(no such file or directory\)"):
        load(file=Path("none.yml"), environ={})
    (here / "fleet.yml").write_bytes(b"\xff\xfe")
    assert problems() == ["fleet.yml: isn't UTF-8 text (byte 0): save it as UTF-8"]


def test_unknown_environment_section_is_reported(here: Path) -> None:
    assert problems(env="prod") == [
        "fleet.yml: the file doesn't exist, and --env prod names its section: write it, or omit --env"
    ]
    assert problems(WRITTEN, env="test") == [
        "fleet.yml: environments: has no 'test': name an existing section (dev, prod), or write it"
    ]


def test_environment_section_can_have_a_number_as_its_name(here: Path) -> None:
    (here / "fleet.yml").write_text("environments: {1: {lease_minutes: 7}}")
    assert load(env="1", environ={}).lease_minutes == 7


def test_target_is_read_from_file_variable_and_flag(here: Path) -> None:
    (here / "fleet.yml").write_text('target: {catalog: main, schema: "{schema}_lake"}\n')
    settings = load({"target.old_name": "table"}, environ={"TABLEFERRY_FLEET_TARGET_CATALOG": "other"})
    place = settings.target
    assert (place.catalog, place.schema_name, place.old_name) == ("other", "{schema}_lake", OldName.TABLE)


def test_invalid_target_is_reported(here: Path) -> None:
    [braces, unknown] = problems("target: {schemas: lake, catalog: '{table}'}\n")
    assert unknown == "fleet.yml: target.schemas: unknown: did you mean schema?"
    assert braces.startswith("fleet.yml: target.catalog: ")
    assert "accepts only the placeholders {catalog} and {schema}" in braces


def test_relative_path_of_an_aliased_section_is_resolved_once(here: Path) -> None:
    file = Path("conf/fleet.yml")
    file.parent.mkdir()
    file.write_text("mail: &same {templates: words}\nenvironments:\n  dev: {mail: *same}\n")
    assert load(file=file, env="dev", environ={}).mail.templates == here / "conf" / "words"
