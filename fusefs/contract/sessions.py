"""What a session is (contract section 1), and how it is written down as JSON and TOML.

A session as a TOML table, every key but ``name`` optional::

    name = "alice"
    world = "chat"                        # or "agent", the default
    boundary = "/Projects"
    start = "/Projects/site"
    user = "alice@example.org"
    context = "site"
    grants = { "/Projects" = "ro", "/Projects/site" = "stage" }
    floors = { "/Projects/site/.git" = "none" }

The JSON form has the same keys and ``secret`` in hexadecimal digits: it is what an instance
keeps, and it is shown to nobody.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType

from fusefs.contract.errors import InvalidArgument
from fusefs.contract.levels import Level
from fusefs.contract.paths import ROOT, Path, is_at_or_below, render, resolve
from fusefs.contract.view import Rules

SECRET_SIZE = 16
"""Length of a session's secret, in bytes."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_CONTEXT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
_USER = re.compile(r"[^<>]*[^<>\s][^<>]*|[^<>]*[^<>\s][^<>]*<[^<>\s]+>")
_OPERATOR_NAME = "-"
_NO_RULES: Mapping[Path, Level] = MappingProxyType({})
_TABLE_KEYS = ("name", "world", "boundary", "start", "grants", "floors", "user", "context")


class World(StrEnum):
    """Where a session works: the server's tree, or an agent's working directory."""

    CHAT = "chat"
    AGENT = "agent"


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """A session as it was made; what it sees follows from this and the user's forge rights.

    Attributes:
        name: 1 to 64 of ``A-Za-z0-9._-``, beginning with a letter or a digit.
        start: where relative paths begin, if it is inside the boundary; see `directory`.
        grants: path to level.
        floors: path to maximum level, from the data group; the session cannot change them.
        user: whose rights on a forge cap mounts, and who its commits are by, as ``Name <mail>``;
            empty for nobody's.
        context: the name in the shared space (contract section 12).
        secret: 16 random bytes that key inode numbers, or empty where none are shown.

    Raises:
        InvalidArgument: a name, context or secret that cannot be one.
    """

    name: str
    world: World = World.AGENT
    boundary: Path = ROOT
    start: Path = ROOT
    grants: Mapping[Path, Level] = field(default_factory=dict)
    floors: Mapping[Path, Level] = field(default_factory=dict)
    user: str = ""
    context: str | None = None
    secret: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        if self.name != _OPERATOR_NAME and not _NAME.fullmatch(self.name):
            raise InvalidArgument(
                f"Not a session name: {self.name!r}. Use 1 to 64 letters, digits, '.', '_' "
                "or '-', beginning with a letter or a digit."
            )
        if self.context is not None:
            if not _CONTEXT.fullmatch(self.context):
                raise InvalidArgument(
                    f"Not a context name: {self.context!r}. Use letters, digits, '_' or '-', "
                    "not beginning with '-'."
                )
            if self.context.lower() == "system":
                raise InvalidArgument(f"Not a context name: {self.context!r} is reserved.")
        if len(self.secret) not in (0, SECRET_SIZE):
            raise InvalidArgument(f"Not a secret: it must be {SECRET_SIZE} bytes long.")

    @property
    def directory(self) -> Path:
        """The start directory; a start outside the boundary is read as the boundary."""
        return self.start if is_at_or_below(self.start, self.boundary) else self.boundary

    def rules(self, caps: Mapping[Path, Level] = _NO_RULES) -> Rules:
        """Return what decides the view; `caps` are the user's rights on mounts."""
        return Rules(grants=self.grants, floors=self.floors, boundary=self.boundary, caps=caps)

    def to_table(self) -> dict[str, object]:
        """Return the form without the secret; `from_table` is the way back."""
        table: dict[str, object] = {
            "name": self.name,
            "world": str(self.world),
            "boundary": render(self.boundary),
            "start": render(self.start),
            "grants": _rules_to_table(self.grants),
            "floors": _rules_to_table(self.floors),
            "user": self.user,
        }
        if self.context is not None:  # TOML has no null
            table["context"] = self.context
        return table

    @classmethod
    def from_table(cls, table: Mapping[str, object]) -> SessionSpec:
        """Return the session that `table` describes, as TOML or JSON from a person gives it.

        Raises:
            InvalidArgument: an unknown key, level or world, a value of the wrong type, a path
                that is not absolute, two different levels for one path, or a name that cannot
                be one.
        """
        unknown = sorted(set(table) - set(_TABLE_KEYS))
        if unknown:
            raise InvalidArgument(
                f"Unknown key in a session: {', '.join(unknown)}. "
                f"Known are {', '.join(_TABLE_KEYS)}."
            )
        if "name" not in table:
            raise InvalidArgument("A session needs a name.")
        name = _text(table, "name")
        if name == _OPERATOR_NAME:
            raise InvalidArgument("Not a session name: '-' stands for the person at the CLI.")
        return cls(
            name=name,
            world=_world(_text(table, "world", World.AGENT)),
            boundary=_absolute(_text(table, "boundary", "/"), "boundary"),
            start=_absolute(_text(table, "start", "/"), "start"),
            grants=_rules_from_table(table, "grants"),
            floors=_rules_from_table(table, "floors"),
            user=_text(table, "user", ""),
            context=None if table.get("context") is None else _text(table, "context"),
        )

    def to_json(self) -> dict[str, object]:
        """Return the form that an instance keeps, secret included."""
        return {**self.to_table(), "secret": self.secret.hex()}

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> SessionSpec:
        """Return the session that `to_json` wrote; the secret may be missing.

        Raises:
            InvalidArgument: as `from_table`, or a secret that is not one.
        """
        table = dict(data)
        digits = _text(table, "secret", "")
        table.pop("secret", None)
        try:
            secret = bytes.fromhex(digits)
        except ValueError:
            raise InvalidArgument("Not a secret: it must be hexadecimal digits.") from None
        return replace(cls.from_table(table), secret=secret)


OPERATOR = SessionSpec(name=_OPERATOR_NAME, grants=MappingProxyType({ROOT: Level.COMMIT}))
"""The person at the CLI: sees and may change everything."""


def parse_user(text: str) -> str:
    """Return a session's user as a person gives it: ``Name <mail>``, or empty for nobody.

    Raises:
        InvalidArgument: git could not write it into a commit.
    """
    if text and not (_USER.fullmatch(text) and text.isprintable()):
        raise InvalidArgument(f"Not a user: {text!r}. Write it as git does: 'Name <mail>'.")
    return text


def parse_rule(text: str) -> tuple[Path, Level]:
    """Return path and level of a rule written ``PATH=LEVEL``; the last ``=`` splits.

    Raises:
        InvalidArgument: no ``=``, a path that is not absolute, or an unknown level.
    """
    path, separator, level = text.rpartition("=")
    if not separator:
        raise InvalidArgument(f"Not a rule: {text!r}. Write PATH=LEVEL, as in /Notes=stage.")
    return _absolute(path, f"rule {text!r}"), _level(level, f"rule {text!r}")


def _absolute(text: str, where: str) -> Path:
    if not text.startswith("/"):
        raise InvalidArgument(f"Not an absolute path in {where}: {text!r} must begin with '/'.")
    return resolve(text)


def _level(text: str, where: str) -> Level:
    try:
        return Level.parse(text)
    except ValueError as error:
        raise InvalidArgument(f"Wrong level in {where}: {error}.") from None


def _world(text: str) -> World:
    try:
        return World(text)
    except ValueError:
        known = ", ".join(World)
        raise InvalidArgument(f"Unknown world {text!r}: use one of {known}.") from None


def _text(table: Mapping[str, object], key: str, default: str | None = None) -> str:
    value = table.get(key, default)
    if not isinstance(value, str):
        raise InvalidArgument(f"Wrong value for {key}: {value!r} is not text.")
    return value


def _rules_to_table(rules: Mapping[Path, Level]) -> dict[str, str]:
    return {render(path): str(level) for path, level in sorted(rules.items())}


def _rules_from_table(table: Mapping[str, object], key: str) -> dict[Path, Level]:
    value = table.get(key, _NO_RULES)
    if not isinstance(value, Mapping):
        raise InvalidArgument(f"Wrong value for {key}: {value!r} is not a table of path to level.")
    rules: dict[Path, Level] = {}
    for text, name in value.items():
        if not isinstance(text, str) or not isinstance(name, str):
            raise InvalidArgument(f"Wrong rule in {key}: {text!r} = {name!r} is not text.")
        path, level = _absolute(text, key), _level(name, f"{key} for {text}")
        if rules.setdefault(path, level) != level:
            raise InvalidArgument(f"Two levels for {render(path)} in {key}: keep one.")
    return rules
