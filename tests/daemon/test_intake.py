"""Taking requests without trio's loop, and letting its tasks run all the same."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import trio
import trio.testing

from fusefs.daemon.intake import Intake, Turnstile


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    os.close(reader)
    os.close(writer)


def nothing() -> None:
    """Do nothing at a pause."""


def test_what_is_there_is_taken_without_a_checkpoint(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = pipe
    monkeypatch.setattr("fusefs.daemon.intake._TURN", 60.0)
    intake = Intake(lambda: False, nothing)

    async def main() -> None:
        os.write(writer, b"x")
        await intake.wait_readable(reader)
        with trio.testing.assert_no_checkpoints():
            await intake.wait_readable(reader)

    trio.run(main)


def test_other_tasks_have_their_turn_however_many_requests_there_are(
    pipe: tuple[int, int],
) -> None:
    reader, writer = pipe
    intake = Intake(lambda: False, nothing)

    async def main() -> None:
        os.write(writer, b"x")  # and never read: there is always a request
        ran = False

        async def other() -> None:
            nonlocal ran
            await trio.sleep(0.02)
            ran = True

        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            while not ran:
                await intake.wait_readable(reader)

    trio.run(main)


@pytest.mark.parametrize("busy", [False, True])
def test_a_pause_of_the_requests_is_waited_out_by_trio(pipe: tuple[int, int], busy: bool) -> None:
    reader, writer = pipe
    pauses: list[int] = []
    intake = Intake(lambda: busy, lambda: pauses.append(1))

    async def write_later() -> None:
        await trio.sleep(0.02)
        os.write(writer, b"x")

    async def main() -> None:
        os.write(writer, b"x")
        await intake.wait_readable(reader)
        os.read(reader, 1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write_later)
            await intake.wait_readable(reader)
        assert os.read(reader, 1) == b"x"
        assert pauses == [1]

    trio.run(main)


def test_the_holder_goes_on_until_it_has_to_wait() -> None:
    turnstile, order = Turnstile(), list[str]()

    async def take(name: str, waits: trio.Event) -> None:
        for step in range(3):
            async with turnstile:
                order.append(f"{name}{step}")
            if step == 1:
                await waits.wait()

    async def main() -> None:
        first, second = trio.Event(), trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(take, "a", first)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(take, "b", second)
            await trio.testing.wait_all_tasks_blocked()
            first.set()
            second.set()
        assert order[:4] == ["a0", "a1", "b0", "b1"]

    trio.run(main)


def test_a_task_that_waits_for_the_lock_gets_it_when_the_holder_blocks() -> None:
    turnstile = Turnstile()

    async def main() -> None:
        got = trio.Event()

        async def other() -> None:
            async with turnstile:
                got.set()

        async with trio.open_nursery() as nursery:
            async with turnstile:
                nursery.start_soon(other)
                await trio.testing.wait_all_tasks_blocked()
                assert not got.is_set()
            with trio.fail_after(5):
                await got.wait()

    trio.run(main)
