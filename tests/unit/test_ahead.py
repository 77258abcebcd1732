"""Items made ahead by a thread: the same items in the same order, and an end in every case."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from nmt.data.ahead import made_ahead


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    before = threading.active_count()
    yield
    assert threading.active_count() == before


@pytest.mark.parametrize("depth", [1, 3, 50])
def test_all_items_come_in_their_order(depth: int) -> None:
    with made_ahead(range(20), depth) as items:
        assert list(items) == list(range(20))


def test_no_more_are_made_than_the_depth_and_two_in_hand() -> None:
    made: list[int] = []
    waits = threading.Event()

    def endless() -> Iterator[int]:
        number = 0
        while True:
            made.append(number)
            if number == 3:
                waits.set()
            yield number
            number += 1

    with made_ahead(endless(), 2) as items:
        assert next(items) == 0
        assert waits.wait(10)  # one used, two kept, and the next waits for its place
        assert made == [0, 1, 2, 3]


def test_an_error_comes_where_its_item_would_have_come() -> None:
    def failing() -> Iterator[int]:
        yield 1
        yield 2
        raise OSError("the disk is gone")

    with made_ahead(failing(), 5) as items:
        assert [next(items), next(items)] == [1, 2]
        with pytest.raises(OSError, match="the disk is gone"):
            next(items)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_leaving_by_an_exception_ends_the_thread(error: type[BaseException]) -> None:
    def endless() -> Iterator[int]:
        while True:
            yield 1

    def use() -> None:
        with made_ahead(endless(), 2) as items:
            next(items)
            raise error

    with pytest.raises(error):
        use()
