"""Open files of bound folders that others have moved: programs of the host tell nobody.

What is not open is looked up by its path each time, and is not found there any more. A file that
is open is at hand wherever it went, and only the kernel knows where that is.
"""

from __future__ import annotations

from fusefs.contract.errors import NotFound
from fusefs.contract.paths import render
from fusefs.contract.view import Cursor
from fusefs.session.place import Place
from fusefs.tree.host_tree import HostTree


def cursor_of(place: Place) -> Cursor:
    """Return what the rules say of a node, now and where it is now.

    Raises:
        NotFound: it was moved out of the folder, or to where it is not visible.
    """
    cursor, backend = place.cursor, place.backend
    if not isinstance(backend, HostTree) or not cursor.visible:
        return cursor
    top = place
    while top.parent is not None and top.parent.backend is backend:
        top = top.parent
    if top.cursor.uniform:
        return cursor  # wherever it is
    try:
        names = backend.moved_to(place.key)
    except FileNotFoundError:
        raise NotFound(render(place.path)) from None
    if names is None:
        return cursor
    cursor = top.cursor
    for name in names:
        cursor = cursor.child(name)
    if not cursor.visible:
        raise NotFound(render(place.path))
    return cursor
