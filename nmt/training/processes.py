"""The processes of one training, as torchrun starts them: what they agree on, deal out and add up.

A single process is the same object with a count of 1; torch.distributed is set up for more than one alone. What is said
to people and what is written is the business of the first process. This file imports torch when it is needed, so that
translation without torch can use it.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from nmt.errors import NmtError, is_out_of_memory
from nmt.training.signals import not_disturbed

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

T = TypeVar("T")

_FOREVER = timedelta(days=365)  # others wait for the first while it prepares data; one that dies is noticed at once
_LINGER = 2.0  # seconds that others leave the first to tell what ended all of them
_NEEDED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class Processes:
    """One process, which has nobody to agree with: all work is its own."""

    rank = 0
    count = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that tells and writes."""
        return self.rank == 0

    def placed(self, device: torch.device) -> torch.device:
        """The device of this process, where all of them were given `device`.

        Raises:
            NmtError: if there are fewer GPUs than processes.
        """
        return device

    def largest(self, value: float) -> float:
        """The largest of what the processes give."""
        return value

    def from_first(self, value: T | None) -> T:
        """What the first process gives."""
        return value  # type: ignore[return-value]

    def gathered(self, value: T) -> list[T]:
        """What each process gives, by rank."""
        return [value]

    def dealt(self, items: Sequence[T]) -> list[T | None]:
        """This process' share of the work: every so manieth item, and None where others have one more.

        So all processes take equally many turns, and neighbours in `items`, which are of like length, at one time.
        """
        turns = range(self.rank, self.rank + len(items), self.count)
        return [items[place] if place < len(items) else None for place in turns]

    def merged(self, own: list[T]) -> list[T]:
        """The results of all items in their order, from those of this process' share."""
        return own

    def summed(self, parameters: Sequence[nn.Parameter], values: Tensor) -> Tensor:
        """Makes each gradient the sum over the processes; returns that of `values`, a vector.

        A process that had nothing to do has no gradients, and counts as zeros.
        """
        return values

    def alike(self, parameters: Sequence[nn.Parameter]) -> None:
        """Gives all processes the weights of the first: two kinds of processor may begin with a bit of difference."""

    def wait(self) -> None:
        """Waits until every process has come here."""


SINGLE = Processes()


class Lost(Exception):
    """Another process is gone."""


class Elsewhere(Exception):
    """This process ends, and another one tells why."""

    def __init__(self, exit_code: int) -> None:
        super().__init__()
        self.exit_code = exit_code


@dataclass(frozen=True)
class Place:
    """Where a process stands: among all of them, and among those on its machine."""

    rank: int
    count: int
    local_rank: int
    local_count: int


def place_of(environment: Mapping[str, str]) -> Place | None:
    """The place that torchrun gives a process by its environment; None for a single process.

    Raises:
        NmtError: if a part of it is missing or no number.
    """
    if not {"RANK", "WORLD_SIZE", "LOCAL_RANK"} & set(environment) or environment.get("WORLD_SIZE") == "1":
        return None
    missing = [name for name in _NEEDED if not environment.get(name)]
    wrong = [name for name in _NEEDED[:4] if name not in missing and not environment[name].isdecimal()]
    if missing or wrong:
        given = ", ".join(f"{name}={environment[name]}" for name in _NEEDED if environment.get(name))
        names = ", ".join(missing or wrong)
        raise NmtError(
            f"the environment says that this is one of several processes ({given}), but {names} "
            f"{'is' if len(missing or wrong) == 1 else 'are'} {'not set' if missing else 'no number'}. Start them with "
            f"torchrun --nproc-per-node N -m nmt train …; or, for a single process, unset {', '.join(_NEEDED[:3])}."
        )
    return Place(*(int(environment[name]) for name in _NEEDED[:4]))


@contextmanager
def joined(environment: Mapping[str, str] = os.environ) -> Iterator[Processes]:
    """The processes that this one belongs to, together for the time of the block.

    Whatever ends the block ends it for all, and one of them tells it: the first, as long as it lives.

    Raises:
        NmtError: if they do not find each other, or one was lost: on the process that tells it.
        Elsewhere: on the others.
    """
    try:
        place = place_of(environment)
    except NmtError:
        if environment.get("RANK", "0") != "0":
            raise Elsewhere(1) from None
        raise
    if place is None:
        yield SINGLE
        return
    group = Group(place)
    try:
        with group.one_voice():
            yield group
    finally:
        group.leave()


class Group(Processes):
    """Several processes, which talk by gloo; gradients of GPUs are added up by nccl.

    All of them call the same methods in the same order. Each method waits for the others; when one of them is gone it
    raises Lost.

    The gradients travel as one vector when the backward pass is done. A recurrent model's weights have their gradients
    at its very end, after the loop over all positions, so that there is nothing that could travel meanwhile, as
    DistributedDataParallel would have it.
    """

    def __init__(self, place: Place) -> None:
        import torch.distributed as dist
        from torch.distributed.rendezvous import rendezvous

        self.rank, self.count, self.place = place.rank, place.count, place
        try:
            self._store, _, _ = next(rendezvous("env://"))
            dist.init_process_group(
                "gloo", store=self._store, rank=place.rank, world_size=place.count, timeout=_FOREVER
            )  # fmt: skip
        except (RuntimeError, ValueError, OSError) as error:
            if place.rank:
                raise Elsewhere(1) from None
            raise NmtError(
                f"the {place.count} processes do not find each other ({str(error).splitlines()[0][:200]}). On several "
                "machines torchrun needs --nnodes and the same --rdzv-backend c10d --rdzv-endpoint HOST:PORT on each; "
                "where a machine has several networks, GLOO_SOCKET_IFNAME names the one to use."
            ) from error
        self._gradients: Any = None  # the group that adds them up; None: the same

    def leave(self) -> None:
        """Lets go of the others."""
        import torch.distributed as dist

        with suppress(RuntimeError, ValueError):
            dist.destroy_process_group()

    def placed(self, device: torch.device) -> torch.device:
        import torch
        import torch.distributed as dist

        if device.type != "cuda":
            return device
        there, wanted = torch.cuda.device_count(), self.place.local_count
        if device.index is not None or there < wanted:
            what = (
                f"training.device is {device}, one GPU for {wanted} processes"
                if device.index is not None
                else f"{wanted} processes were started here, and torch sees {there} GPU{'s' * (there != 1)}"
            )
            raise NmtError(
                f"{what}: each process needs a GPU of its own. Set training.device to cuda and start as many as there "
                f"are GPUs: torchrun --nproc-per-node {there}; or train on the CPU: --set training.device=cpu."
            )
        own = torch.device("cuda", self.place.local_rank)
        torch.cuda.set_device(own)
        with self._together():
            self._gradients = dist.new_group(backend="nccl")
        return own

    def largest(self, value: float) -> float:
        import torch
        import torch.distributed as dist

        values = torch.tensor([value], dtype=torch.float64)
        with self._together():
            dist.all_reduce(values, dist.ReduceOp.MAX)
        return values.item()

    def from_first(self, value: T | None) -> T:
        import torch.distributed as dist

        values: list[Any] = [value if self.first else None]
        with self._together():
            dist.broadcast_object_list(values, src=0)
        return values[0]  # type: ignore[no-any-return]

    def gathered(self, value: T) -> list[T]:
        import torch.distributed as dist

        values: list[Any] = [None] * self.count
        with self._together():
            dist.all_gather_object(values, value)
        return values

    def merged(self, own: list[T]) -> list[T]:
        shares = self.gathered(own)
        return [shares[place % self.count][place // self.count] for place in range(sum(map(len, shares)))]

    def summed(self, parameters: Sequence[nn.Parameter], values: Tensor) -> Tensor:
        import torch
        import torch.distributed as dist

        gradients = [parameter.new_zeros(()).expand_as(parameter) if parameter.grad is None else parameter.grad
                     for parameter in parameters]  # fmt: skip
        flat = torch.cat([*(gradient.reshape(-1) for gradient in gradients), values.to(gradients[0].dtype)])
        with self._together():
            dist.all_reduce(flat, group=self._gradients)
        for parameter, gradient in zip(parameters, torch.split(flat, [*map(torch.numel, parameters), len(values)])):
            parameter.grad = gradient.view_as(parameter)
        return flat[-len(values) :]

    def alike(self, parameters: Sequence[nn.Parameter]) -> None:
        import torch
        import torch.distributed as dist

        with torch.no_grad():
            flat = torch.cat([parameter.reshape(-1) for parameter in parameters])
            with self._together():
                dist.broadcast(flat, src=0, group=self._gradients)
            for parameter, weights in zip(parameters, torch.split(flat, [*map(torch.numel, parameters)])):
                parameter.copy_(weights.view_as(parameter))

    def wait(self) -> None:
        import torch.distributed as dist

        with self._together():
            dist.barrier()

    # --- how it ends --------------------------------------------------------------------------------------------------

    @contextmanager
    def _together(self) -> Iterator[None]:
        """Around what all do together."""
        try:
            yield
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            not_disturbed()
            raise Lost(str(error)) from error

    @contextmanager
    def one_voice(self) -> Iterator[None]:
        """Lets one process alone tell what ends the block.

        Raises:
            NmtError: on the process that tells that another one is gone, and why if it could say so.
            Elsewhere: in place of everything but a defect, on a process that has nothing to tell.
        """
        try:
            yield
        except Lost:
            raise self._loss() from None
        except BaseException as error:
            if self.first:
                not_disturbed()
                self._tells()
                raise
            if not isinstance(error, NmtError | KeyboardInterrupt | SystemExit) and not hasattr(error, "exit_code"):
                raise  # a defect: its traceback is here
            if isinstance(error, NmtError):
                self._noted(error)
            self._leave_the_first_time()
            code = getattr(error, "exit_code", getattr(error, "code", None))
            raise Elsewhere(code if isinstance(code, int) else 1) from None

    def _tells(self) -> bool:
        """Whether this process is the first that wants to tell how it ended."""
        try:
            return int(self._store.add("nmt/told", 1)) == 1
        except RuntimeError:  # the first process kept it, as without torchrun, and is gone
            return self.rank <= 1

    def _noted(self, error: NmtError) -> None:
        """Leaves a message for the process that tells."""
        with suppress(RuntimeError):
            self._store.set("nmt/failure", f"process {self.rank} on {socket.gethostname()}: {error}")

    def _leave_the_first_time(self) -> None:
        """Waits until the first process tells, which most likely ends for the same reason."""
        with suppress(RuntimeError):
            self._store.wait(["nmt/told"], timedelta(seconds=_LINGER))

    def _loss(self) -> Exception:
        """What a process that has lost another raises."""
        if not self.first:
            time.sleep(1)  # the first one tells it, if it is there
        if not self._tells():
            return Elsewhere(1)
        failure = None
        with suppress(RuntimeError):
            if self._store.check(["nmt/failure"]):
                failure = self._store.get("nmt/failure").decode()
        return NmtError(
            failure
            or f"one of the {self.count} processes has ended unexpectedly, and the others end with it (torchrun says "
            "which and how). Nothing that was saved is lost: give the command again with --resume."
        )
