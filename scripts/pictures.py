"""Take the pictures of README and docs from real runs of the examples (`make pictures`).

Terminal output becomes SVG. Chromium opens the fleet's page and writes it as PNG.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from examples import demo, demo_convert, demo_fleet
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from tableferry import fleet, pipelines
from tableferry.errors import TableferryError
from tableferry.fleet.settings import FleetSettings, MailSettings
from tableferry.pipelines import reports
from tableferry.spark import session
from tableferry.testing import FixedClock

PICTURES = Path("docs/pictures")
WIDTH = 118

# Rich's own document loads a font from another host. Any monospaced font works: each text has its width.
_DOCUMENT = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{
  font: {char_height}px Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono", monospace;
  line-height: {line_height}px;
}}
.{unique_id}-title {{ font: bold 18px sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""

_THEME = TerminalTheme(
    (30, 34, 44),
    (222, 226, 234),
    [
        (30, 34, 44),
        (240, 113, 120),
        (152, 195, 121),
        (229, 192, 123),
        (97, 175, 239),
        (198, 120, 221),
        (86, 182, 194),
        (200, 204, 212),
    ],
)


def recorder(width: int = WIDTH) -> Console:
    """Return a console that records and prints nothing."""
    return Console(
        record=True,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        width=width,
        markup=False,
        highlight=False,
    )


def keep(console: Console, name: str, title: str) -> None:
    """Write a console's recorded output as a picture."""
    file = PICTURES / f"{name}.svg"
    svg = console.export_svg(title=title, theme=_THEME, code_format=_DOCUMENT, unique_id="t")
    file.write_text(
        "\n".join(line.rstrip() for line in svg.splitlines() if line.strip()) + "\n", encoding="utf-8"
    )
    print(f"{file}: {file.stat().st_size:,} bytes")


def picture_conversion(folder: Path) -> None:
    """Take the picture of a conversion's dry run, with a refused table."""
    demo_convert.build_lake(folder / "lake")
    command = ["tableferry", "convert", "lake", "--recursive", "--dry-run", "--quiet"]
    environment = {**os.environ, "COLUMNS": str(WIDTH), "PYTHONPATH": os.pathsep.join(sys.path)}
    code = "from tableferry.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *command[1:]],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    console = recorder()
    console.print(f"$ {' '.join(command)}", style="cyan")
    console.print(Text.from_ansi(done.stdout.rstrip()))
    keep(console, "convert", "Parquet to Delta: a dry run")


def picture_pipeline(folder: Path) -> None:
    """Take the pictures of a migration's plan, and of its targets a month later."""
    spark = session.resolve(folder)
    console = recorder()
    story = demo.Demo(spark, folder, console)
    old_stream, arrivals = demo.build_company(story)
    old_stream.processAllAvailable()
    old_stream.stop()
    planned = pipelines.plan(story.project, spark)
    console.print("$ tableferry pipelines plan flights --check", style="cyan")
    reports.print_plan(console, planned, pipelines.check(planned, spark))
    keep(console, "plan", "A migration's plan")
    pipelines.run(story.project, spark)
    demo.write_arrivals(story, {"flights": arrivals["flights"]}, [10])
    pipelines.run(story.project, spark)
    console.print("$ tableferry pipelines status flights", style="cyan")
    reports.print_status(console, pipelines.status(story.project, spark))
    keep(console, "status", "Where each target is")
    session.stop(spark)


def picture_fleet(folder: Path) -> None:
    """Take the picture of the page of a fleet with completed, shadowed and waiting tables."""
    spark = session.resolve(folder / "warehouse", iceberg=True)
    clock = FixedClock(datetime(2026, 3, 2, 6, tzinfo=UTC))
    store = fleet.open_store(f"sqlite:///{folder / 'fleet.db'}")
    mailbox = demo_fleet.Mailbox()
    with demo_fleet.mail_server(mailbox) as port:
        settings = FleetSettings(mail=MailSettings(host="127.0.0.1", port=port))
        story = demo_fleet.Demo(
            spark, folder, recorder(), demo_fleet.recipes(), store, settings, mailbox, clock
        )
        demo_fleet.build_warehouse(story)
        store.create()
        store.add(
            [
                fleet.NewJob(story.name(recipe.table), recipe.form, 7, 7, (recipe.owner,))
                for recipe in story.tables
            ],
            clock(),
        )

        def daily(tables: int) -> None:
            opened = story.worker.open_warehouse
            worker = fleet.Worker(store, opened, settings, "daily", clock, batch_size=tables)
            fleet.preprocess(story.worker)
            fleet.migrate(worker)
            fleet.communicate(store, settings, worker="daily", clock=clock)
            clock.turn(days=1)

        daily(0)
        clock.turn(days=6)
        for tables in (1, 3, 2, 4, 0, 3, 2, 4, 5, 3):
            daily(tables)
        fleet.shadow(story.worker)
        reverted = next(
            job.name for job in store.jobs(fleet.selections.everything()) if job.state == "WritesUnblocked"
        )
        fleet.revert(story.worker, [reverted])
        clock.turn(minutes=200)
        html = folder / "fleet.html"
        html.write_text(fleet.page(fleet.read_status(store, clock())), encoding="utf-8")
    store.close()
    session.stop(spark)
    photograph(html, PICTURES / "fleet.png", 1200, 944)


def photograph(html: Path, picture: Path, width: int, height: int) -> None:
    """Write the upper part of a page as a picture, with Chromium.

    Raises:
        TableferryError: Chromium is missing.
    """
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        raise TableferryError("Chromium is missing: apt-get install chromium")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        subprocess.run(
            [
                chromium,
                "--headless",
                # Root has no sandbox.
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                "--disable-dev-shm-usage",
                "--host-resolver-rules=MAP * ~NOTFOUND",
                f"--user-data-dir={profile}",
                f"--window-size={width},{height}",
                f"--screenshot={picture.resolve()}",
                html.resolve().as_uri(),
            ],
            check=True,
            capture_output=True,
            timeout=120,
        )
    print(f"{picture}: {picture.stat().st_size:,} bytes")


TAKEN = {"convert": picture_conversion, "pipelines": picture_pipeline, "fleet": picture_fleet}


def main() -> int:
    """Take the named pictures, or all of them, each in a separate process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("route", nargs="*", choices=[*TAKEN, []], help="which ones; all by default")
    routes = parser.parse_args().route or list(TAKEN)
    if len(routes) > 1:
        return max(subprocess.call([sys.executable, "-m", "scripts.pictures", route]) for route in routes)
    PICTURES.mkdir(parents=True, exist_ok=True)
    folder = Path(".tableferry", "pictures", routes[0])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    TAKEN[routes[0]](folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
