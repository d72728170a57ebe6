"""The settings of a fleet."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

from tableferry.fleet.jobs.job import LONGEST_GAP, OldName, TargetFormat

STUCK_HOURS = 3
"""The default number of hours after which a table that should continue counts as stuck."""


PLACEHOLDER_RULE = "accepts only the placeholders {catalog} and {schema}"
"""The problem of a catalog or schema of new tables with other placeholders."""


def has_known_placeholders(place: str) -> bool:
    """Return whether a catalog or schema of new tables has only known placeholders."""
    return "{" not in place.replace("{catalog}", "").replace("{schema}", "")


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LateFiles(StrEnum):
    """The treatment of late files: pause the job, or append their rows to the new table."""

    PAUSE = "pause"
    TAKE = "take"


class RemovedPartitions(StrEnum):
    """The treatment of partitions that an overwrite during probation removed: report them, or pause."""

    ALARM = "alarm"
    PAUSE = "pause"


class MailSettings(_Settings):
    """The mail server, and the content of notifications.

    Attributes:
        host: The SMTP server.
        port: The server's port.
        tls: ``starttls`` asks for encryption after connecting, ``tls`` connects with encryption.
        user: The user to log in as; empty for no login.
        password: From ``TABLEFERRY_FLEET_MAIL_PASSWORD``, or the secret ``password_secret``.
        password_secret: A secret of the workspace, ``scope/key``.
        sender: The sender of notifications.
        reply_to: The address for replies; the sender by default.
        domain: The domain for names that aren't e-mail addresses; without it, their owners and readers are
            left out.
        templates: A folder with templates that replace the built-in ones of the same file names.
        batch: The maximum number of readers per notification.
        portal: A page about the migration, for the notifications.
        contact: A contact for questions, for the notifications.
        ca_file: A PEM file with certificates to trust instead of the machine's.
        timeout_seconds: The maximum wait for a reply of the server.
        give_up_days: The days of refusals after which a notification leaves a recipient out.
    """

    host: str = "localhost"
    port: int = Field(default=25, ge=1, le=65535)
    tls: Literal["none", "starttls", "tls"] = "none"
    user: str = ""
    password: SecretStr = SecretStr("")
    password_secret: str = ""
    sender: str = "tableferry@localhost"
    reply_to: str = ""
    domain: str = ""
    templates: Path | None = None
    batch: int = Field(default=50, ge=1)
    portal: str = ""
    contact: str = ""
    ca_file: Path | None = None
    timeout_seconds: int = Field(default=30, ge=1)
    give_up_days: int = Field(default=7, ge=1)

    @property
    def give_up_after(self) -> timedelta:
        """`give_up_days` as a duration."""
        return timedelta(days=self.give_up_days)


class TargetSettings(_Settings):
    """The schema of new tables; by default the schema of the Hive table.

    Attributes:
        catalog: The catalog; empty for the Hive table's catalog. ``{catalog}`` and ``{schema}`` are replaced
            by those of the Hive table.
        schema_name: The schema, with the same placeholders; the setting's name is ``schema``.
        old_name: The meaning of a table's old name after the switch, if the new table is in another schema:
            a ``view`` of the new table, or the Hive ``table``, which gets its changes during probation.
    """

    catalog: str = ""
    schema_name: str = Field(default="", alias="schema")
    old_name: OldName = OldName.VIEW

    @field_validator("catalog", "schema_name")
    @classmethod
    def _known_parts(cls, value: str) -> str:
        if not has_known_placeholders(value):
            raise ValueError(PLACEHOLDER_RULE)
        return value


class FleetSettings(_Settings):
    """The settings of a fleet.

    Attributes:
        store: The queue: SQLAlchemy's URL of a database, or ``delta:catalog.schema``.
        store_password_secret: A secret of the workspace with the database's password, ``scope/key``.
        target_format: The format of new tables, for jobs that are added.
        target: The catalog and schema of new tables, for jobs that are added.
        rewrite: Whether rows may be rewritten if the new table can't use the files (text, CSV, JSON and
            others), for jobs that are added.
        rewrite_chunk_mb: The megabytes of such a table that one write has, at least a partition. A finished
            write isn't repeated after a crash.
        initial_gap_days: Days between the first notification and the migration, for jobs that are added.
        probation_gap_days: Days between the second notification and the archive, for jobs that are added.
        tables_at_once: The number of tables that a worker migrates or a preflight checks concurrently, each
            in a separate Spark session; always 1 through Spark Connect and on serverless compute.
        lease_minutes: The lease of a worker's claim, which each heartbeat extends.
        stuck_hours: The hours after which a table that should continue counts as stuck.
        late_files: Whether late files pause the job, or their rows are appended to the new table.
        removed_partitions: Whether an overwrite during probation that removed partitions pauses the job
            before the Hive copy gets the change, or is only reported.
        column_mapping: Whether Delta tables use column mapping for names with spaces or brackets, which their
            readers must support.
        iceberg_catalog: The Spark catalog of Iceberg tables, over the same metastore.
        require_owner: Whether a table without an owner pauses.
        users_file: A CSV file with the columns ``table`` and ``user``.
        require_lineage: Whether an unreadable lineage of Unity Catalog is an error.
        mail: The mail settings.
    """

    store: str = "sqlite:///.tableferry/fleet.db"
    store_password_secret: str = ""
    target_format: TargetFormat = TargetFormat.ICEBERG
    target: TargetSettings = TargetSettings()
    rewrite: bool = False
    rewrite_chunk_mb: int = Field(default=16_384, ge=1)
    initial_gap_days: int = Field(default=14, ge=0, le=LONGEST_GAP)
    probation_gap_days: int = Field(default=14, ge=0, le=LONGEST_GAP)
    tables_at_once: int = Field(default=4, ge=1)
    lease_minutes: int = Field(default=15, ge=1, le=LONGEST_GAP * 24 * 60)
    stuck_hours: int = Field(default=STUCK_HOURS, ge=1, le=LONGEST_GAP * 24)
    late_files: LateFiles = LateFiles.PAUSE
    removed_partitions: RemovedPartitions = RemovedPartitions.ALARM
    column_mapping: bool = False
    iceberg_catalog: str = "ice"
    require_owner: bool = False
    users_file: Path | None = None
    require_lineage: bool = False
    mail: MailSettings = MailSettings()

    @property
    def lease(self) -> timedelta:
        """The lease of a claim."""
        return timedelta(minutes=self.lease_minutes)
