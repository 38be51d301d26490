"""Names that no entry of a working copy may have, since git refuses them (verify_path of git)."""

from __future__ import annotations

import re

from fusefs.contract.paths import NAME_MAX

_DOT_GIT = re.compile(rb"(\.git|git~1)[. ]*([\\:].*)?", re.IGNORECASE | re.DOTALL)
"""What some file system takes for ``.git`` (is_ntfs_dotgit of git)."""


def is_git(name: bytes) -> bool:
    """Tell whether git keeps a name for itself, on any file system."""
    return name[:1] in b".gG" and _DOT_GIT.fullmatch(name) is not None


def is_unusable(name: bytes) -> bool:
    """Tell whether an entry of a tree object can be in no directory: git would not check it out."""
    return is_git(name) or name in (b"", b".", b"..") or b"/" in name or len(name) > NAME_MAX
