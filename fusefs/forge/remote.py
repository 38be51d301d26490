"""What the drivers of forges on the network share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from fusefs.forge import refusals
from fusefs.forge.credentials import Credential, advice
from fusefs.forge.errors import AuthenticationFailed, Forbidden, Missing
from fusefs.forge.model import Access, Branch, PullRequest, Right, State
from fusefs.forge.rest import Patience, Rest
from fusefs.forge.urls import Remote


class RemoteDriver(ABC):
    """One repository of a forge on the network, as the user whom a credential belongs to."""

    kind = ""
    _root = ""
    """The repository's place in the API."""

    def __init__(
        self,
        remote: Remote,
        credential: Credential | None,
        user: str,
        api: str,
        patience: Patience | None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._remote = remote
        self._rest = Rest(api, remote, self.kind, credential, headers=headers, patience=patience)
        self.repository = f"{self.kind}:{self.web_site(remote)}/{remote.path}"
        self.user = user
        self.credential = "" if credential is None else credential.fingerprint

    def close(self) -> None:
        """Close its connections."""
        self._rest.close()

    @staticmethod
    def web_site(remote: Remote) -> str:
        """Return scheme, host and port of the forge's web site, also where git uses ssh."""
        return f"https://{remote.host}" if remote.scheme == "ssh" else remote.site

    def no_credential(self) -> str:
        """Say that nobody is logged in, and what to do."""
        return f"You have no credential for {self._remote.host}. {self._advice()}"

    def hidden(self) -> str:
        """Say that there is nothing to be seen."""
        if not self.credential:
            return f"Without a credential it cannot be seen. {self._advice()}"
        return "It is not there, or your credential may not see it."

    def missing_branch(self, *names: str) -> Missing | None:
        """Return the refusal for the first branch that is not there, for forges that do not say."""
        for name in names:
            if self.find_branch(name) is None:
                return refusals.no_branch(name)
        return None

    @abstractmethod
    def find_branch(self, name: str) -> Branch | None:
        """See `fusefs.forge.model.Driver`."""

    def _about(self) -> dict[str, Any] | Access:
        """Return what the forge says of the repository, or that it is out of the user's reach."""
        try:
            about: dict[str, Any] | None = self._rest.find(self._root)
        except (AuthenticationFailed, Forbidden) as error:
            return Access(Right.NONE, error.text)
        return Access(Right.NONE, self.hidden()) if about is None else about

    def _advice(self) -> str:
        return advice(self._remote, self.kind)


def select(
    requests: Iterable[PullRequest], state: State | None, head: str, base: str, limit: int
) -> list[PullRequest]:
    """Return the first `limit` that are meant; an empty `head` or `base` means any.

    Forges differ in what they can be asked for, and ignore what they do not know.
    """
    wanted = (
        request
        for request in requests
        if state in {None, request.state}
        and head in {"", request.head}
        and base in {"", request.base}
    )
    return list(islice(wanted, limit))
