"""Listings (contract section 8); the formats are also in the conformance vectors."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fusefs.contract.levels import Level
from fusefs.contract.listing import ListedEntry, format_listing
from fusefs.contract.sessions import World

entries = st.lists(
    st.builds(
        ListedEntry,
        name=st.text(st.characters(exclude_characters="/\0\n[]"), min_size=1, max_size=4),
        kind=st.sampled_from(["dir", "file", "mount", "symlink"]),
        level=st.sampled_from([Level.RO, Level.STAGE, Level.COMMIT]),
    ),
    unique_by=lambda entry: entry.name,
    max_size=6,
)


@given(entries, st.sampled_from(World), st.sampled_from(Level), st.randoms())
def test_order_of_the_input_does_not_matter(listed, world, level, random) -> None:
    text = format_listing(listed, world=world, directory_level=level)
    shuffled = list(listed)
    random.shuffle(shuffled)
    assert format_listing(shuffled, world=world, directory_level=level) == text


@given(entries, st.sampled_from(Level))
def test_a_chat_adds_only_marks(listed, level) -> None:
    agent = format_listing(listed, world=World.AGENT, directory_level=level)
    chat = format_listing(listed, world=World.CHAT, directory_level=level)
    assert chat.replace(" [mount]", "").replace(" [read-only]", "") == agent


def test_nothing_is_empty_text() -> None:
    assert format_listing([], world=World.CHAT, directory_level=Level.STAGE) == ""
