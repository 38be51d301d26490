"""Names that no entry of a working copy may have: git refuses them (its verify_path and fsck_tree).

They are those that some file system takes for ``.git``, and for symbolic links ``.gitmodules``.
"""

from __future__ import annotations

import re

from fusefs.contract.paths import NAME_MAX

_END = r"[. ]*"
"""What NTFS leaves out at the end of a name."""
_SHORT = "|".join("gi7eba"[:n] + f"~[1-9][0-9]{{{6 - n}}}" for n in range(7))
"""What NTFS calls .gitmodules beside others of its like (is_ntfs_dot_generic of git)."""
_NTFS_GIT = re.compile(rf"(\.git|git~1){_END}(:.*)?".encode(), re.IGNORECASE | re.DOTALL)
_NTFS_MODULES = re.compile(
    rf"(\.gitmodules|gitmod~[1-4]|{_SHORT}){_END}(:.*)?".encode(), re.IGNORECASE | re.DOTALL
)

_IGNORED = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
"""What HFS+ leaves out of a name (next_hfs_char of git)."""
_BROKEN = "[\ud800-\udfff\ufffe\uffff]"
"""What git takes for the end of such a name, since it is no UTF-8."""
_ASCII = re.IGNORECASE | re.ASCII | re.DOTALL
_HFS_GIT = re.compile(rf"\.git({_BROKEN}.*)?", _ASCII)
_HFS_MODULES = re.compile(rf"\.gitmodules({_BROKEN}.*)?", _ASCII)

_SUSPECTS = b".gG~\xe2\xef"
"""What such a name can begin with, if it has no backslash."""


def is_refused(name: bytes, *, link: bool) -> bool:
    """Tell whether git refuses a name, on any file system, for a symbolic link or for others."""
    if name[:1] not in _SUSPECTS and b"\\" not in name:
        return False
    # On Windows a backslash ends a name.
    parts = name.split(b"\\")
    if any(_NTFS_GIT.fullmatch(part) for part in parts):
        return True
    if link and any(_NTFS_MODULES.fullmatch(part) for part in parts):
        return True
    if name.isascii():
        return False
    text = _IGNORED.sub("", name.decode("utf-8", "surrogateescape"))
    return bool(_HFS_GIT.fullmatch(text) or (link and _HFS_MODULES.fullmatch(text)))


def is_unusable(name: bytes, *, link: bool) -> bool:
    """Tell whether an entry of a tree object can be in no directory, nor be checked out by git."""
    return (
        is_refused(name, link=link)
        or name in (b"", b".", b"..")
        or b"/" in name
        or len(name) > NAME_MAX
    )
