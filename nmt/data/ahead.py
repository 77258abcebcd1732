"""Items made by a thread in the background, while those before them are used."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, Queue
from typing import TypeVar

Item = TypeVar("Item")


@contextmanager
def made_ahead(items: Iterable[Item], depth: int) -> Iterator[Iterator[Item]]:
    """The items in their order, up to `depth` of them made before they are asked for.

    An exception of `items` is raised where its item would have come. When the block ends, however it does, the thread
    ends too, once the item in hand is made.
    """
    queue: Queue[tuple[bool, Item | BaseException | None]] = Queue(depth)
    left = threading.Event()

    def work() -> None:
        try:
            for item in items:
                queue.put((True, item))
                if left.is_set():
                    return
            queue.put((False, None))
        except BaseException as error:  # whatever it is, the program must not wait for ever
            queue.put((False, error))

    def made() -> Iterator[Item]:
        while True:
            more, item = queue.get()
            if more:
                yield item  # type: ignore[misc]
            elif isinstance(item, BaseException):
                raise item
            else:
                return

    # A daemon: a second Ctrl-C ends the process whatever the thread does.
    thread = threading.Thread(target=work, name="batches", daemon=True)
    thread.start()
    try:
        yield made()
    finally:
        left.set()
        while thread.is_alive():  # it may wait to put an item
            with suppress(Empty):
                queue.get(timeout=0.05)
        thread.join()
