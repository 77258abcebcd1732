"""An update asks for no value of the device: on a GPU each such question would wait for all the work before it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from models import MODELS
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary
from updates import first_batch, training_of, update

from nmt.model import devices
from nmt.training.readings import Readings

ASKING = ("_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_consecutive", "equal", "is_nonzero")
MOVING = (torch.Tensor.cpu, torch.Tensor.numpy, torch.Tensor.tolist)


class Host:
    """Tensors that are on the CPU whatever the device is: those given, and what is computed from them alone.

    `Tensor.to` with a device ends that.
    """

    def __init__(self, *tensors: torch.Tensor) -> None:
        self.known = WeakIdKeyDictionary()
        self.add(*tensors)

    def add(self, *tensors: torch.Tensor) -> None:
        for tensor in tensors:
            self.known[tensor] = True

    def remove(self, tensor: torch.Tensor) -> None:
        self.known.pop(tensor, None)

    def holds(self, tensor: torch.Tensor) -> bool:
        return tensor in self.known


class AskingOps(TorchDispatchMode):
    """Notes each operation that would wait for a GPU: those whose result's value or size the program needs."""

    def __init__(self, host: Host) -> None:
        super().__init__()
        self.host = host
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **kwargs or {})
        name = func.overloadpacket.__name__
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if tensors and all(map(self.host.holds, tensors)):
            self.host.add(*(leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)))
            return result
        if name == "_pack_padded_sequence":
            self.host.add(result[1])  # the batch sizes, which torch makes on the CPU
        by_mask = name in ("index", "index_put", "index_put_", "_index_put_impl_") and any(
            index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1]
        )
        if by_mask or name in ASKING:
            self.found.append(name)
        return result


class MovingCalls(TorchFunctionMode):
    """Notes each call that would copy from a GPU; on a CPU it does nothing that `AskingOps` could see."""

    def __init__(self, host: Host) -> None:
        super().__init__()
        self.host = host
        self.found: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in MOVING and not self.host.holds(args[0]):
            self.found.append(func.__name__)
        result = func(*args, **kwargs or {})
        given = any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves((args, kwargs)))
        if isinstance(result, torch.Tensor) and not given and "device" not in (kwargs or {}):
            self.host.add(result)  # made where no device was named
        to_device = func is torch.Tensor.to and isinstance((*args, None)[1], str | torch.device | torch.Tensor)
        if to_device and self.host.holds(result):
            if not (kwargs or {}).get("non_blocking"):
                self.found.append("to")
            result = result.clone()  # on a CPU it is the same tensor, on a GPU another
            self.host.remove(result)
        return result


def waits(work: Any, host: Host) -> list[str]:
    """The names of all that would wait in `work`."""
    with AskingOps(host) as ops, MovingCalls(host) as calls:
        work()
    return ops.found + calls.found


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", MODELS)
def test_an_update_waits_for_nothing(
    tmp_path: Path, name: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "on_cpu", lambda tensor: False)  # the ways that a GPU takes
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
    training = training_of(tmp_path / "one", name, precision=precision)
    training.readings = Readings(torch.device("cpu"), late=2)
    batch = first_batch(training)
    host = Host(batch.src_lengths_B)

    def work() -> None:
        update(training, batch.to(torch.device("cpu")))
        update(training, batch.to(torch.device("cpu")))

    assert waits(work, host) == []


def questions(x: torch.Tensor) -> Iterator[Any]:
    yield lambda: x.sum().item()
    yield lambda: bool((x > 0).any())
    yield lambda: x[x > 0]
    yield lambda: x.__setitem__(x > 0, 1.0)
    yield lambda: (x > 0).nonzero()
    yield lambda: x.cpu()
    yield lambda: x.tolist()
    yield lambda: torch.equal(x, x + 1)


def test_the_detector_finds_what_waits_and_leaves_the_cpu_alone() -> None:
    for number, question in enumerate(questions(torch.arange(3.0))):
        assert waits(question, Host()), number
    lengths = torch.tensor([3, 1])
    assert waits(lambda: int(lengths.cpu().max() + 1), Host(lengths)) == []
    assert waits(lambda: lengths.to("cpu"), Host(lengths)) == ["to"]
    assert waits(lambda: lengths.to("cpu", non_blocking=True), Host(lengths)) == []
    assert waits(lambda: lengths.to("cpu", non_blocking=True).cpu(), Host(lengths)) == ["cpu"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", MODELS)
def test_on_a_gpu_torch_itself_sees_no_wait(tmp_path: Path, name: str, precision: str) -> None:
    training = training_of(tmp_path / "one", name, device="cuda", precision=precision)
    batch = first_batch(training).pinned()
    update(training, batch.to(training.device))  # kernels are loaded and memory is taken
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        update(training, batch.to(training.device))
        update(training, batch.to(training.device))
    finally:
        torch.cuda.set_sync_debug_mode("default")
