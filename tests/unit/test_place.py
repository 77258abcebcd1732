"""Where a process stands among others: what torchrun's environment says, and how work is dealt out."""

from __future__ import annotations

import pytest
import torch

from nmt.errors import NmtError
from nmt.training.processes import SINGLE, Elsewhere, Group, Place, Processes, joined, place_of

GIVEN = {
    "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1",
}  # fmt: skip


def test_the_environment_of_torchrun_gives_the_place() -> None:
    assert place_of(GIVEN) == Place(3, 4, 1, 2)


@pytest.mark.parametrize("environment", [{}, {"MASTER_ADDR": "a"}, GIVEN | {"RANK": "0", "WORLD_SIZE": "1"}])
def test_one_process_is_alone(environment: dict[str, str]) -> None:
    with joined(environment) as processes:
        assert processes is SINGLE


def test_what_is_missing_or_wrong_is_named_once() -> None:
    first = GIVEN | {"RANK": "0"}
    for name in GIVEN:
        without = {key: value for key, value in first.items() if key != name}
        with pytest.raises(NmtError, match=f"{name} is not set. Start them with torchrun"), joined(without):
            pass
    with pytest.raises(NmtError, match="LOCAL_RANK is no number"):
        place_of(GIVEN | {"LOCAL_RANK": "x"})
    with pytest.raises(Elsewhere), joined(GIVEN | {"WORLD_SIZE": ""}):
        pass


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("items", [0, 1, 5, 6])
def test_all_processes_take_equally_many_turns_and_share_the_items(count: int, items: int) -> None:
    class One(Processes):
        def __init__(self, rank: int) -> None:
            self.rank, self.count = rank, count

    turns = [One(rank).dealt(range(items)) for rank in range(count)]
    assert len({len(turn) for turn in turns}) == 1
    in_order = [item for turn in zip(*turns) for item in turn if item is not None]
    assert in_order == list(range(items))


def test_each_process_needs_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    group = object.__new__(Group)
    group.place = Place(0, 4, 0, 4)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert group.placed(torch.device("cpu")) == torch.device("cpu")
    with pytest.raises(NmtError, match=r"4 processes were started here, and torch sees 1 GPU: each process needs"):
        group.placed(torch.device("cuda"))
    with pytest.raises(NmtError, match=r"training\.device is cuda:1, one GPU for 4 processes"):
        group.placed(torch.device("cuda:1"))
