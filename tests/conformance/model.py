"""A session on a tree kept in a dictionary, decided by the contract read word by word.

It holds the vectors themselves against the contract: a vector that this model does not answer
as it says is wrong, or the contract has a gap.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from fusefs.contract import errors
from fusefs.contract.kinds import Kind
from fusefs.contract.levels import Level
from fusefs.contract.listing import ListedEntry, format_listing
from fusefs.contract.paths import ROOT, Path, decode, is_at_or_below, render, resolve
from fusefs.contract.sessions import OPERATOR, SessionSpec, World
from tests.contract import naive

Nodes = dict[Path, "bytes | str | None"]
"""Path to a file's bytes, a link's target, or None for a directory."""

MAX_LINKS = 40
DIRECTORIES = (Kind.DIR, Kind.MOUNT)
CAPS = {"none": Level.NONE, "read": Level.RO, "write": Level.COMMIT}


class Described(NamedTuple):
    kind: Kind
    level: Level


class Entry(NamedTuple):
    name: str
    stat: Described


class ModelSession:
    """One session on a tree.

    Args:
        nodes: the tree.
        spec: the session.
        mounts: the user's right in each of the tree's repositories.
    """

    def __init__(
        self, nodes: Nodes, spec: SessionSpec, mounts: Mapping[Path, Level] | None = None
    ) -> None:
        self.nodes = nodes
        self.spec = spec
        self.mounts = mounts or {}
        self.rules = spec.rules() if spec is OPERATOR else spec.rules(self.mounts)
        if spec.world is World.CHAT:
            for at, node in nodes.items():
                if isinstance(node, str) and self._mount_of(at) is not None:
                    nodes[at] = node.encode()
        self.base = dict(nodes)

    def commit(self, path: str) -> None:
        at = resolve(path, self.spec.directory)
        if not (naive.visible(self.rules, at) or naive.passage(self.rules, at)):
            raise self._unseen(at)
        if self._mount_of(at) is None and at not in self.mounts:
            raise errors.NothingToCommit(render(at))
        changed = [p for p in sorted({*self.nodes, *self.base}) if self._is_staged(p, at)]
        refused = [p for p in changed if self._level(p) < Level.COMMIT]
        if refused or (not changed and self._level(at) < Level.COMMIT):
            first = (refused or [at])[0]
            if not naive.visible(self.rules, first):
                raise self._unseen(first)
            stages = self._level(first) >= Level.STAGE
            raise (errors.NotCommitted if stages else errors.ReadOnly)(render(first))
        if not changed:
            raise errors.NothingStaged("commit", render(at))
        for p in changed:
            self.base.pop(p, None)
            if p in self.nodes:
                self.base[p] = self.nodes[p]

    def _is_staged(self, path: Path, at: Path) -> bool:
        before, now = self.base.get(path), self.nodes.get(path)
        return before != now and is_at_or_below(path, at) and naive.visible(self.rules, path)

    def _mount_of(self, path: Path) -> Path | None:
        """Return the repository that a path is in."""
        return next((at for at in self.mounts if is_at_or_below(path, at) and path != at), None)

    def _need_name(self, at: Path) -> None:
        """A repository has no name that git keeps for itself."""
        if self._mount_of(at) is not None and at[-1].lower() == b".git":
            raise errors.NotPermitted(render(at), "made or changed")

    def stat(self, path: str) -> Described:
        at = self.existing(path)
        return Described(self.kind(at), self._level(at))

    def list(self, path: str) -> list[Entry]:
        at = self.existing(path)
        if self.kind(at) not in DIRECTORIES:
            raise errors.NotADirectory(render(at))
        below = (p for p in self.nodes if p[:-1] == at != p and naive.visible(self.rules, p))
        return [Entry(decode(p[-1]), Described(self.kind(p), self._level(p))) for p in below]

    def listing(self, path: str) -> str:
        return format_listing(
            (ListedEntry(e.name, e.stat.kind.name.lower(), e.stat.level) for e in self.list(path)),
            world=self.spec.world,
            directory_level=self._level(self._walk(path)),
        )

    def read(self, path: str) -> bytes:
        at = self.existing(path)
        if self.kind(at) in DIRECTORIES:
            return self.listing(path).encode()
        content = self.nodes[at]
        assert isinstance(content, bytes)
        return content

    def write(self, path: str, data: bytes) -> None:
        at = self._creatable(path)
        if at in self.nodes:
            if self.kind(at) in DIRECTORIES:
                raise errors.IsADirectory(render(at))
            self._need_stage(at)
        else:
            self._make_parents(at)
            self._need_name(at)
        self.nodes[at] = data

    def mkdir(self, path: str) -> None:
        at = self._creatable(path)
        if at not in self.nodes:
            self._make_parents(at)
            self._need_name(at)
            self.nodes[at] = None
        elif self.kind(at) not in DIRECTORIES:
            raise errors.AlreadyExists(render(at))

    def rm(self, path: str) -> None:
        at = self.existing(path, follow=False)
        if at == ROOT:
            raise errors.MountBusy("/")
        self._need_parent(at)
        self._need_removable(at)
        for below in [p for p in self.nodes if is_at_or_below(p, at)]:
            del self.nodes[below]

    def mv(self, path: str, target: str) -> None:
        source = self._walk(path, follow=False)
        to = self._creatable(target, follow=False)
        if source not in self.nodes:
            raise errors.NotFound(render(source))
        if to in self.nodes and not (is_at_or_below(to, source) and to != source):
            raise errors.AlreadyExists(render(to))
        if is_at_or_below(to, source):
            raise errors.InvalidArgument(f"Not moved: {render(to)} is inside {render(source)}.")
        self._need_parent(source)
        self._need_parent(to)
        self._need_directory(to[:-1])
        self._need_removable(source)
        self._need_stage(to[:-1])
        self._need_stage(to)
        if self.kind(source) in DIRECTORIES:
            self._refuse_by_rules(to)
        if self._mount_of((*source, b"")) != self._mount_of((*to, b"")):
            raise errors.CrossMount(render(source), render(to))
        self._need_name(to)
        for below in [p for p in self.nodes if is_at_or_below(p, source)]:
            self.nodes[to + below[len(source) :]] = self.nodes.pop(below)

    def symlink(self, path: str, target: str) -> None:
        at = self._creatable(path, follow=False)
        if self.spec.world is World.CHAT:
            raise errors.NotPermitted(render(at), "a symbolic link")
        if at in self.nodes:
            raise errors.AlreadyExists(render(at))
        self._need_parent(at)
        self._need_directory(at[:-1])
        self._need_stage(at)
        self._need_name(at)
        self.nodes[at] = target

    def _level(self, path: Path) -> Level:
        return naive.level(self.rules, path)

    def kind(self, path: Path) -> Kind:
        node = self.nodes[path]
        if node is None:
            return Kind.MOUNT if path in self.mounts else Kind.DIR
        return Kind.FILE if isinstance(node, bytes) else Kind.SYMLINK

    def _unseen(self, path: Path) -> errors.ContractError:
        text = naive.unseen_text(self.rules, path)
        denied = text.startswith("Access denied")
        return (errors.AccessDenied if denied else errors.NotFound)(render(path))

    def _walk(self, text: str, *, follow: bool = True, creating: bool = False) -> Path:
        """Return where `text` leads in the view, through links; it is visible."""
        left = list(resolve(text, self.spec.directory))
        at: Path = ROOT
        links = 0
        while True:
            if not naive.visible(self.rules, at):
                # Passages are gone through, whatever is there.
                if not (left and naive.passage(self.rules, at)):
                    full = (*at, *left)
                    raise errors.AccessDenied(render(full)) if creating else self._unseen(full)
            elif at in self.nodes:
                node = self.nodes[at]
                if isinstance(node, str) and (left or follow):
                    links += 1
                    if links > MAX_LINKS:
                        raise errors.LinkLoop(render(at))
                    left = [*resolve(node, at[:-1]), *left]
                    at = ROOT
                    continue
                if isinstance(node, bytes) and left:
                    full = (*at, *left)
                    if not (naive.visible(self.rules, full) or naive.passage(self.rules, full)):
                        raise errors.AccessDenied(render(full)) if creating else self._unseen(full)
                    raise errors.NotADirectory(render(at))
            if not left:
                return at
            at = (*at, left.pop(0))

    def _creatable(self, text: str, *, follow: bool = True) -> Path:
        return self._walk(text, follow=follow, creating=True)

    def existing(self, text: str, *, follow: bool = True) -> Path:
        at = self._walk(text, follow=follow)
        if not self._is_there(at):
            raise errors.NotFound(render(at))
        return at

    def _is_there(self, at: Path) -> bool:
        return at in self.nodes and all(self.nodes.get(at[:n], b"") is None for n in range(len(at)))

    def _need_stage(self, at: Path) -> None:
        if self._level(at) < Level.STAGE:
            raise errors.ReadOnly(render(at))

    def _need_parent(self, at: Path) -> None:
        """Nothing comes or goes directly inside a passage."""
        if naive.passage(self.rules, at[:-1]):
            raise errors.AccessDenied(render(at[:-1]))

    def _need_directory(self, at: Path) -> None:
        if at not in self.nodes:
            raise errors.NotFound(render(at))
        if self.kind(at) not in DIRECTORIES:
            raise errors.NotADirectory(render(at))

    def _make_parents(self, at: Path) -> None:
        missing = next(n for n in range(len(at) + 1) if self._is_missing(at[:n]))
        self._need_parent(at[:missing])
        self._need_stage(at)
        for length in range(missing, len(at)):
            self._need_stage(at[:length])
        for length in range(missing, len(at)):
            self._need_name(at[:length])
            self.nodes[at[:length]] = None

    def _is_missing(self, at: Path) -> bool:
        return naive.visible(self.rules, at) and at not in self.nodes

    def _need_removable(self, at: Path) -> None:
        if self.kind(at) in DIRECTORIES:
            self._refuse_by_rules(at)
        else:
            self._need_stage(at)
        below = sorted(mount for mount in self.mounts if is_at_or_below(mount, at))
        if below:
            raise errors.MountBusy(render(below[0]))

    def _refuse_by_rules(self, at: Path) -> None:
        text = naive.refusal_text(self.rules, at)
        if text is not None:
            path = text.removeprefix("Access denied: ").removeprefix("Read-only: ").split(" ")[0]
            raise (errors.AccessDenied if text.startswith("A") else errors.ReadOnly)(path)


def planted(tree: Mapping[str, object]) -> Nodes:
    """Return the nodes of a vector's tree, parents included."""
    nodes: Nodes = {ROOT: None}
    for text, value in tree.items():
        path = resolve(text)
        for length in range(len(path)):
            nodes[path[:length]] = None
        if not isinstance(value, Mapping):
            nodes[path] = None if value is None else str(value).encode()
        elif "link" in value:
            nodes[path] = str(value["link"])
        else:
            nodes[path] = None
            inside = planted(value["repository"])
            nodes.update({(*path, *below): node for below, node in inside.items()})
    return nodes


def mounted(tree: Mapping[str, object]) -> dict[Path, Level]:
    """Return the repositories of a vector's tree, with the user's right in each."""
    return {
        resolve(text): CAPS[value.get("right", "write")]
        for text, value in tree.items()
        if isinstance(value, Mapping) and "repository" in value
    }
