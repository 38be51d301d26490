"""What a session finds, on real instances."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from fusefs.contract.errors import AccessDenied, InvalidArgument, NotFound
from fusefs.contract.levels import Level
from fusefs.index.index import Index
from fusefs.session.answers import Mode
from fusefs.session.binding import bind
from fusefs.session.searching import Searcher
from tests.repositories import place as repositories
from tests.search.made_up import MadeUp
from tests.search.place import Place, paths


def test_a_hit_is_the_passage_with_its_lines(place: Place) -> None:
    place.owner.write("/notes/tea.md", b"# Tea\n\nGreen tea wants 80 degrees.\nNot more.\n\nEnd.\n")
    found = place.searcher().search("green degrees", limit=1)
    assert found.text() == "/notes/tea.md:3-4\nGreen tea wants 80 degrees.\nNot more."
    found = place.searcher().search("tea")
    assert found.text().count("\n\n") == len(found.hits) - 1


def test_found_by_words_at_once_and_by_meaning_later(place: Place) -> None:
    place.owner.write("/a.txt", b"bananas ripen")
    place.owner.write("/b.txt", b"zebras run")
    searcher = place.searcher()
    found = searcher.search("bread rolls")
    assert not found.hits
    assert found.completeness.vectors_pending == 2
    assert "2 of 2 files are found by words alone" in found.notes[0]
    place.complete()
    found = searcher.search("bread rolls")
    assert paths(found)[0] == "/a.txt"
    assert (found.completeness.vectors_pending, found.notes) == (0, [])
    assert found.hits[0].words is None
    assert found.hits[0].meaning is not None


def test_modes(place: Place) -> None:
    place.owner.write("/words.txt", b"quantity xylophone")
    place.owner.write("/meaning.txt", b"queen xenon")
    place.complete()
    searcher = place.searcher()
    assert paths(searcher.search("quantity", mode=Mode.WORDS)) == ["/words.txt"]
    by_meaning = searcher.search("quick", mode=Mode.MEANING)
    assert set(paths(by_meaning)) == {"/words.txt", "/meaning.txt"}
    assert all(hit.words is None for hit in by_meaning.hits)
    hybrid = searcher.search("quantity")
    assert paths(hybrid) == ["/words.txt", "/meaning.txt"]
    assert hybrid.hits[0].score == pytest.approx(1 / 6 + 1 / 7)


def test_what_follows_a_change(place: Place) -> None:
    searcher = place.searcher()
    place.owner.write("/d/a.txt", b"first version")
    assert paths(searcher.search("version", mode=Mode.WORDS)) == ["/d/a.txt"]
    place.owner.write("/d/a.txt", b"second edition")
    assert not searcher.search("version", mode=Mode.WORDS).hits
    assert paths(searcher.search("edition", mode=Mode.WORDS)) == ["/d/a.txt"]
    place.owner.mv("/d", "/e")
    assert paths(searcher.search("edition", mode=Mode.WORDS)) == ["/e/a.txt"]
    place.owner.write("/d/copy.txt", b"second edition")
    (hit,) = searcher.search("edition", mode=Mode.WORDS).hits
    assert hit.paths == ("/d/copy.txt", "/e/a.txt")
    place.owner.rm("/e")
    assert searcher.search("edition", mode=Mode.WORDS).hits[0].paths == ("/d/copy.txt",)
    place.owner.rm("/d/copy.txt")
    assert not searcher.search("edition", mode=Mode.WORDS).hits


def test_moves_and_copies_embed_nothing(place: Place, tmp_path: Path) -> None:
    place.owner.write("/d/a.txt", b"apples\n\nberries\n\ncherries")
    place.complete()
    assert len(place.model.embedded) == 3
    place.owner.mv("/d", "/e")
    place.owner.write("/f/copy.txt", b"apples\n\nberries\n\ncherries")
    source = repositories.make_source(
        tmp_path / "source", lambda f: (f / "same.txt").write_text("apples\n\nberries\n\ncherries")
    )
    for name in (b"one", b"two"):
        place.owner.mkdir(b"/" + name)
        repositories.add_mount(place.instance, source, (name,))
    place.complete()
    assert len(place.model.embedded) == 3
    hit = place.searcher().search("berries", mode=Mode.WORDS).hits[0]
    assert hit.paths == ("/e/a.txt", "/f/copy.txt", "/one/same.txt", "/two/same.txt")


def test_only_what_the_session_sees(place: Place) -> None:
    place.owner.write("/open/a.txt", b"common words, open")
    place.owner.write("/closed/b.txt", b"common words, closed")
    place.owner.write("/open/hidden/c.txt", b"common words, hidden")
    place.owner.write("/open/hidden/deep/d.txt", b"common words, deep")
    place.complete()
    session = place.session("s", "/open=ro", "/open/hidden=none", "/open/hidden/deep=ro")
    searcher = place.searcher(session)
    assert set(paths(searcher.search("common", "/open"))) == {
        "/open/a.txt", "/open/hidden/deep/d.txt",
    }  # fmt: skip
    assert searcher.search("common", "/open").completeness.files == 2
    with pytest.raises(AccessDenied, match="Access denied: / is not open"):
        searcher.search("common", "/")
    with pytest.raises(AccessDenied):
        searcher.search("common", "/closed")
    with pytest.raises(NotFound):
        searcher.search("common", "/open/missing")


def test_path_and_glob(place: Place) -> None:
    for path in ("/a/one.py", "/a/b/two.py", "/c/three.md", "/c/same.py"):
        place.owner.write(path, b"needle " + path.encode())
    place.owner.write("/a/same.py", b"needle /c/same.py")
    searcher = place.searcher()
    assert set(paths(searcher.search("needle", "/a"))) == {"/a/one.py", "/a/b/two.py", "/a/same.py"}
    assert paths(searcher.search("needle", "/a/one.py")) == ["/a/one.py"]
    found = searcher.search("needle", include="*.md")
    assert paths(found) == ["/c/three.md"]
    assert set(paths(searcher.search("needle", "/a", include="b/*.py"))) == {"/a/b/two.py"}
    assert set(paths(searcher.search("needle", include="!*.py"))) == {"/c/three.md"}
    (hit,) = searcher.search("needle same", "/c/same.py").hits
    assert hit.paths == ("/c/same.py",)


def test_ties_in_path_order_and_limits(place: Place) -> None:
    names = ["/b/x", "/a/y", "/a/x", "/a-b/x", "/c"]
    for number, path in enumerate(names):
        place.owner.write(path, b"equal thing %d" % number)
    place.complete()
    found = place.searcher().search("equal thing")
    # Names are compared one by one: what is in /a comes before /a-b.
    assert paths(found) == ["/a/x", "/a/y", "/a-b/x", "/b/x", "/c"]
    assert paths(place.searcher().search("equal thing", limit=2)) == ["/a/x", "/a/y"]


def test_the_same_passage_in_several_texts_is_one_hit(place: Place) -> None:
    place.owner.write("/b.txt", b"The same licence.\n\nOne.")
    place.owner.write("/a.txt", b"The same licence.\n\nTwo.")
    (hit,) = place.searcher().search("licence", mode=Mode.WORDS).hits
    assert hit.paths == ("/a.txt", "/b.txt")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"query": " "}, "Empty query"),
        ({"query": "x", "limit": 0}, "limit must be"),
        ({"query": "x", "limit": 100_000}, "limit must be"),
    ],
)
def test_bad_arguments(place: Place, arguments: dict[str, object], says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        place.searcher().search(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "query", ["'\"(", "***", "\0", "\ud800", "ß" * 5000, "NOT AND OR", "日本", "a" * 100_000]
)
def test_any_query_is_words(place: Place, query: str) -> None:
    place.owner.write("/a.txt", "日本語 text".encode())
    place.complete()
    place.searcher().search(query)


def test_what_is_no_text_is_counted(place: Place) -> None:
    place.owner.write("/a.bin", b"\xff\x00\x01")
    place.owner.write("/b.bin", b"latin \xe9")
    place.owner.write("/big.txt", b"word " * 1_000_000)
    place.owner.write("/c.txt", b"word")
    completeness = place.searcher().search("word").completeness
    assert (completeness.files, completeness.not_text, completeness.too_large) == (4, 2, 1)
    assert completeness.words_pending == 0


def test_without_a_model_words_answer(place: Place) -> None:
    place.owner.write("/a.txt", b"apples")
    place.complete()
    searcher = Searcher(place.owner, place.library, place.model, unavailable="no model is there.")
    found = searcher.search("apples", mode=Mode.MEANING)
    assert paths(found) == ["/a.txt"]
    assert found.notes == ["By words alone: no model is there."]


def test_another_model_takes_over_when_its_index_is_complete(place: Place) -> None:
    place.owner.write("/a.txt", b"apples")
    place.complete()
    old, other = place.model, MadeUp("another", dimensions=30)
    without_old = Searcher(place.owner, place.library, other)
    found = without_old.search("apples")
    assert paths(found) == ["/a.txt"]
    assert found.notes == ["By words alone: the index of the new model is not complete yet."]
    with_old = Searcher(place.owner, place.library, other, model_of=lambda index: old)
    found = with_old.search("aubergine")
    assert (paths(found), found.notes) == (["/a.txt"], [])
    place.model = other
    place.complete()
    for searcher in (without_old, with_old):
        found = searcher.search("aubergine")
        assert (paths(found), found.notes) == (["/a.txt"], [])
    assert len([f for f in place.library.folder.iterdir() if f.is_dir()]) == 1


def test_a_rebuilt_index_takes_over_when_it_is_complete(place: Place) -> None:
    place.owner.write("/a.txt", b"apples")
    place.complete()
    place.library.rebuild(place.model)
    found = place.searcher().search("aubergine")
    assert (paths(found), found.notes) == (["/a.txt"], [])
    pending = place.indexer().pending()
    assert (pending.words_pending, pending.vectors_pending) == (1, 1)
    place.complete()
    assert len(place.model.embedded) == 2
    assert paths(place.searcher().search("aubergine")) == ["/a.txt"]
    assert len([f for f in place.library.folder.iterdir() if f.is_dir()]) == 1


def test_folders_of_the_host_are_found_as_they_are_now(place: Place, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.txt").write_text("apples on the host")
    bind(place.instance, folder, (b"mine",))
    searcher = place.searcher()
    assert paths(searcher.search("apples")) == ["/mine/a.txt"]
    # Changed within the moment for which a look at the folder is good, and as long as before.
    (folder / "a.txt").write_text("bananas were here!")
    assert not searcher.search("apples", mode=Mode.WORDS).hits
    assert paths(searcher.search("bananas", mode=Mode.WORDS)) == ["/mine/a.txt"]


def test_what_is_staged_is_found_by_its_own_session_alone(place: Place, tmp_path: Path) -> None:
    source = repositories.make_source(
        tmp_path / "source", lambda f: (f / "a.txt").write_text("committed words\n")
    )
    repositories.add_mount(place.instance, source, (b"proj",))
    one = place.session("one", "/proj=commit")
    two = place.session("two", "/proj=commit")
    one.write("/proj/a.txt", b"staged words\n")
    one.write("/proj/new.txt", b"brandnew words\n")
    by_one, by_two = place.searcher(one), place.searcher(two)
    assert paths(by_one.search("staged", "/proj")) == ["/proj/a.txt"]
    assert paths(by_one.search("brandnew", "/proj")) == ["/proj/new.txt"]
    assert not by_one.search("committed", "/proj").hits
    assert paths(by_two.search("committed", "/proj")) == ["/proj/a.txt"]
    assert not by_two.search("staged brandnew", "/proj").hits
    place.complete()
    assert by_one.search("s", "/proj").completeness.vectors_pending == 0
    assert by_two.search("s", "/proj").completeness.vectors_pending == 0


def test_what_nobody_sees_any_more_is_forgotten(place: Place) -> None:
    place.owner.write("/a.txt", b"apples")
    place.owner.write("/b.txt", b"berries")
    place.complete()
    place.owner.rm("/a.txt")
    searcher = place.searcher()
    searcher.search("berries")
    assert place.indexer().forget() == 1
    assert paths(searcher.search("berries apples", mode=Mode.WORDS)) == ["/b.txt"]
    place.owner.write("/again.txt", b"apples")
    assert paths(searcher.search("apples", mode=Mode.WORDS)) == ["/again.txt"]
    place.complete()
    assert place.model.embedded.count("apples") == 2


def test_rules_that_change_hold_at_once(place: Place) -> None:
    place.owner.write("/a/x.txt", b"apples")
    place.owner.write("/b/y.txt", b"apples too")
    session = place.session("s", "/a=ro")
    searcher = place.searcher(session)
    assert paths(searcher.search("apples", "/a")) == ["/a/x.txt"]
    spec = place.instance.sessions.get("s")
    table = {**spec.to_table(), "grants": {"/b": Level.RO.name.lower()}}
    place.instance.sessions.put(type(spec).from_table(table), "-")
    with pytest.raises(AccessDenied):
        searcher.search("apples", "/a")
    assert paths(searcher.search("apples", "/b")) == ["/b/y.txt"]


def test_what_has_no_vector_yet_is_not_behind_what_only_means_something(place: Place) -> None:
    for number in range(30):
        place.owner.write(f"/a{number}.txt", b"penguins %d" % number)
    place.complete()
    place.owner.write("/z.txt", b"platypus")
    found = place.searcher().search("platypus", limit=3)
    assert paths(found)[0] == "/z.txt"


def test_a_full_disk_leaves_what_is_indexed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.owner.write("/a.txt", b"apples")
    place.complete()
    place.owner.write("/b.txt", b"apples too")

    def full(*_: object) -> bool:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Index, "add", full)
    found = place.searcher().search("apples", mode=Mode.WORDS)
    assert paths(found) == ["/a.txt"]
    assert found.notes[-1] == "Nothing can be indexed now: No space left on device."


def test_a_question_waits_no_longer_than_it_may_for_others(place: Place) -> None:
    place.owner.write("/a.txt", b"apples")
    place.complete()
    place.owner.write("/b.txt", b"berries")
    with place.library.answering(place.model).adding():
        found = place.searcher().search("apples", mode=Mode.WORDS, patience=0.05)
    assert paths(found) == ["/a.txt"]
    assert "1 of 2 files are not indexed yet" in found.notes[0]
