"""Real git worktrees of a mounted repository, for tools that want a folder with a ``.git``.

A worktree is made on a branch that points at an empty commit, which is then moved to the base: that
costs the same whatever the repository's size. Files come into it on demand, and are checked out
over only where nobody has changed them since.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pygit2
from pygit2.enums import CheckoutStrategy, DiffOption, ObjectType

from fusefs.forge.opening import open_repository, trusting
from fusefs.tree.repository_errors import git_errors
from fusefs.tree.repository_objects import RepositoryObjects

_EXACTLY = (
    CheckoutStrategy.FORCE
    | CheckoutStrategy.REMOVE_UNTRACKED
    | CheckoutStrategy.REMOVE_IGNORED
    | CheckoutStrategy.DONT_UPDATE_INDEX
)
_AS_THEY_ARE = "* -text -ident -filter -working-tree-encoding\n"
"""Attributes for all files: a working copy has and commits bytes as they are, without filters."""

_EVERYTHING = (
    DiffOption.INCLUDE_UNTRACKED
    | DiffOption.RECURSE_UNTRACKED_DIRS
    | DiffOption.INCLUDE_IGNORED
    | DiffOption.RECURSE_IGNORED_DIRS
    | DiffOption.IGNORE_SUBMODULES
    | DiffOption.INCLUDE_TYPECHANGE
)


class RepositoryWorktree:
    """The worktree of one session's working copy."""

    def __init__(self, objects: RepositoryObjects, folder: Path) -> None:
        """Speak of the worktree in `folder`, which may not be there yet; its branch and note are
        called as the folder is."""
        self._objects = objects
        self._repository = objects.repository
        self.folder = folder
        self.branch = f"fusefs/{folder.name}"
        self._note = f"refs/fusefs/worktree/{folder.name}"

    @property
    def exists(self) -> bool:
        """Tell whether it was made."""
        return (self.folder / ".git").exists()

    @git_errors("the git worktree cannot be used")
    def make(self, base: bytes) -> None:
        """Make the worktree if there is none, and have its branch point at the commit `base`."""
        name = f"refs/heads/{self.branch}"
        if not self.exists:
            self.remove()
            self.folder.parent.mkdir(exist_ok=True)
            attributes = Path(self._objects.folder, "info", "attributes")
            attributes.parent.mkdir(exist_ok=True)
            attributes.write_text(_AS_THEY_ARE)
            empty = self._repository.odb.write(ObjectType.TREE, b"")
            who = pygit2.Signature("fusefs", "fusefs@localhost")
            commit = self._repository.create_commit(None, who, who, "empty\n", empty, [])
            self._objects.set_ref(name, commit.raw)
            branch = self._repository.references[name]
            with trusting(ours=True):
                self._repository.add_worktree(self._name, os.fspath(self.folder), branch)
        self._objects.set_ref(name, base)

    @git_errors("the git worktree cannot be used")
    def materialise(self, tree: bytes, base: bytes) -> None:
        """Have the worktree's files be those of `tree`, as changes to the commit `base`.

        Raises:
            OSError: a file cannot be written: the disk is full, a link's target is none.
        """
        worktree = open_repository(self.folder, ours=True)
        # A run that is cut off leaves no note, so the next one starts over.
        if self._note not in self._repository.references:
            Path(worktree.path, "index.lock").unlink(missing_ok=True)  # it may have left this
        self._objects.drop_ref(self._note)
        files = worktree[pygit2.Oid(raw=tree)]
        with git_errors("git cannot write all files"):
            worktree.checkout_tree(files, strategy=_EXACTLY)  # type: ignore[no-untyped-call]
        worktree.index.read_tree(pygit2.Oid(raw=self._objects.tree_of(base)))
        worktree.index.write()
        self._objects.set_ref(self._note, tree)

    @git_errors("the git worktree cannot be used")
    def has_changes(self) -> bool:
        """Tell whether somebody changed the worktree's files since they were put there."""
        note = self._repository.references.get(self._note)
        if note is None or not self.exists:
            return False
        worktree = open_repository(self.folder, ours=True)
        tree = worktree[note.target]
        assert isinstance(tree, pygit2.Tree)
        return any(True for _ in tree.diff_to_workdir(_EVERYTHING).deltas)

    @git_errors("the git worktree cannot be used")
    def remove(self) -> None:
        """Remove the worktree and what the repository knows of it."""
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._name in self._repository.list_worktrees():
            self._repository.lookup_worktree(self._name).prune(True)
        for name in (f"refs/heads/{self.branch}", self._note):
            self._objects.drop_ref(name)

    @property
    def _name(self) -> str:
        return self.folder.name
