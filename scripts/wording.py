"""Count phrases that make sentences hard to follow for readers whose first language isn't English.

`make lint` runs it without arguments: it checks the finished paths. With paths it prints the phrases in them.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]

# What to avoid, as a regular expression for whole words, and what to write instead.
PHRASES: Mapping[str, str] = {
    r"nobody|somebody|who(m|ever|soever)|what(ever|soever)|whichever": "name the person or the thing",
    r"what (is|was|are|were|it|they|a|an|the|to)": "a noun: 'the rows', not 'what is in it'",
    r"of (what|which|whom)": "start with the subject",
    r"one of (its|their) own|(of|in) (its|their) own|by (it|them)sel(f|ves)": "separate, automatically",
    r"anew": "again, or re-: recreated, reread, rebuilt",
    r"behind": "after",
    r"(go|goes|going|went|gone) on": "continue, resume",
    r"brings?|brought|bringing": "append, write, produce",
    r"comes? (along|in|late|later|since|through)|came": "arrive, is written, is added",
    r"(is|are|was|were|isn't|aren't|wasn't|be|been) there": "exist, is missing",
    r"says|said|say (so|that|what|which|how|when|where|whether)": "report, state, record, print",
    r"looks? (at|for|into)|looked (at|for|into)|looking (at|for|into)": "check, read, list, search",
    r"lies?|lay|lain": "is in, is stored in",
    r"(had|has|have) otherwise|otherwise than|is another": "differs",
    r"hinders?|hindrances?": "prevent, blocker",
    r"so many|as many as": "n, up to n, at most n",
    r"at once": "immediately, or concurrently",
    r"letters?": "notification, e-mail",
    r"for good": "permanently",
    r"meanwhile|thereby|therein|beforehand|besides": "during …, by this, in it, before, also",
    r"took its place|in the hands of|stands? (for|in|by)": "replace, own, mean",
}
PATTERNS = {re.compile(rf"\b({phrase})\b", re.IGNORECASE): advice for phrase, advice in PHRASES.items()}

# Hits per 1,000 lines, or per 1,000 words of a page.
SOURCE, TESTS, PAGES = 7.0, 3.0, 2.0

# Git pathspecs of files within the limits; add finished paths. Without `:(glob)`, `*` also matches slashes.
_FINISHED_SOURCE = """
src/tableferry/doctor
src/tableferry/cli src/tableferry/convert src/tableferry/errors src/tableferry/formats src/tableferry/spark
src/tableferry/pipelines src/tableferry/storage src/tableferry/verify :(glob)src/tableferry/*.py benchmarks
examples scripts/[!w]*.py src/tableferry/fleet/reports src/tableferry/fleet/copies
src/tableferry/fleet/notifications src/tableferry/fleet/modes/communicator.py
src/tableferry/fleet/warehouse src/tableferry/fleet/hive_tables src/tableferry/fleet/checks
src/tableferry/fleet/closure
src/tableferry/fleet/late_files
src/tableferry/fleet/shadow_runs
src/tableferry/fleet/hive_copy
src/tableferry/fleet/modes
src/tableferry/access src/tableferry/fleet/access src/tableferry/fleet/operations src/tableferry/fleet/queue
src/tableferry/fleet/jobs :(glob)src/tableferry/fleet/*.py
"""
_FINISHED_TESTS = """
:(glob)tests/[!f]*.py tests/footers.py tests/bundle tests/connect tests/workspace
tests/spark
tests/unit/c*.py tests/unit/test_[!dfrvw]*.py tests/unit/test_d[ao]*.py tests/unit/test_foreign_writes.py
tests/unit/test_re[p-z]*.py tests/unit/test_ve*.py
tests/unit/test_fleet_notifications*.py tests/unit/test_fleet_communicate*.py
tests/unit/test_fleet_warehouse*.py tests/unit/test_fleet_hive.py tests/unit/test_fleet_checked_tables.py
tests/unit/test_fleet_preflight.py tests/unit/test_fleet_close.py tests/unit/test_fleet_table_cache.py
tests/unit/test_fleet_access_unity.py
tests/unit/test_fleet_shared_files.py
tests/unit/test_fleet_[jlm]*.py
tests/unit/test_fleet_b*.py
tests/unit/test_fleet_rev*.py
tests/unit/test_fleet_sh*.py
tests/unit/test_fleet_access*.py tests/unit/test_fleet_write_block.py tests/unit/test_fleet_adding.py
tests/unit/test_fleet_settings.py
tests/unit/test_fleet_plan.py tests/unit/test_fleet_next_action.py tests/unit/test_fleet_storage_clock.py
tests/unit/test_fleet_hand_changes*.py tests/unit/test_fleet_queue.py tests/unit/test_fleet_queue_[su]*.py
tests/unit/test_view*.py tests/fleet_queue.py tests/fleet_sessions.py tests/fleet_worker.py
"""
_FINISHED_PAGES = """
CHANGELOG.md CONTRIBUTING.md README.md :(glob)docs/*.md docs/concepts docs/decisions docs/development
docs/how-to docs/operations docs/reference docs/start
"""
FINISHED: Mapping[str, float] = {
    **dict.fromkeys(_FINISHED_SOURCE.split(), SOURCE),
    **dict.fromkeys(_FINISHED_TESTS.split(), TESTS),
    **dict.fromkeys(_FINISHED_PAGES.split(), PAGES),
}


def hits(line: str) -> Iterator[tuple[str, str]]:
    """Yield each phrase to avoid in a line, with the advice; an identifier counts as its words."""
    for pattern, advice in PATTERNS.items():
        for match in pattern.finditer(line.replace("_", " ")):
            yield match[0], advice


def files(path: str) -> list[Path]:
    """Return the tracked files of text or code at a path or pattern, relative to the repository."""
    listed = subprocess.run(["git", "ls-files", path], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in listed.stdout.splitlines() if Path(name).suffix in {".py", ".md", ".yml"}]


def rate(path: str) -> tuple[float, list[str]]:
    """Return the hits per 1,000 lines (of Markdown: words) at a path, and a report of each hit."""
    size, found = 0, []
    for file in files(path):
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            size += len(line.split()) if file.suffix == ".md" else 1
            where = f"{file.relative_to(ROOT)}:{number}"
            found += [f"{where}: {phrase!r}: write {advice}" for phrase, advice in hits(line)]
    return 1000 * len(found) / max(size, 1), found


def main(arguments: Sequence[str]) -> int:
    """Report the given paths, or return 1 if a finished one is above its limit or has no file."""
    for path in arguments:
        measured, found = rate(path)
        print(*found, f"{path}: {measured:.1f} hits per 1,000", sep="\n")
    failures = 0
    for path, limit in {} if arguments else FINISHED.items():
        measured, found = rate(path)
        if measured > limit or not files(path):
            print(
                *found, f"{path}: {measured:.1f} hits per 1,000, at most {limit:g}", sep="\n", file=sys.stderr
            )
            failures += 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
