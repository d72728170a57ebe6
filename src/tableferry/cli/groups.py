"""Command groups that import the module of a command only when the command runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar

import typer.main
from typer.core import TyperCommand, TyperGroup

from tableferry.cli.command import App


@dataclass(frozen=True)
class Entry:
    """The module and the application of one command.

    Attributes:
        app: A module below ``tableferry.cli`` and, after a colon, its application: a group, or the one where
            the command is registered.
        help: The line in the list of commands; without it, the list imports the module.
        is_group: Whether the application is a group, and the command consists of the whole group.
    """

    app: str
    help: str = ""
    is_group: bool = False

    @property
    def exists(self) -> bool:
        """Whether the module exists; a bundle with the package's source has only its routes' modules."""
        return find_spec(self._module) is not None

    @property
    def _module(self) -> str:
        return f"tableferry.cli.{self.app.partition(':')[0]}"

    def load(self, name: str) -> Any:
        """Import the module, and return the command."""
        app: App = getattr(import_module(self._module), self.app.partition(":")[2])
        if self.is_group:
            command: Any = typer.main.get_group(app)
        else:
            alone = App()
            alone.registered_commands = [info for info in app.registered_commands if info.name == name]
            command = typer.main.get_command(alone)
        command.name = name
        return command


class _LazyCommands(Mapping[str, Any]):
    """Commands by name; each is loaded at its first use."""

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        self._entries = entries
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = self._entries[name].load(name)
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


class LazyGroup(TyperGroup):
    """A group whose commands are loaded at first use; subclasses list them in `entries`."""

    entries: ClassVar[Mapping[str, Entry]]

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.existing_entries = {name: entry for name, entry in self.entries.items() if entry.exists}
        self.commands: Any = _LazyCommands(self.existing_entries)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names, without loading the commands."""
        return list(self.commands)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help without loading commands whose entries have a help line."""
        shown = copy(self)
        shown.commands = {
            name: TyperCommand(name, help=entry.help) if entry.help else self.commands[name]
            for name, entry in self.existing_entries.items()
        }
        TyperGroup.format_help(shown, ctx, formatter)
