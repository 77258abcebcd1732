"""`metrics.jsonl` and TensorBoard hold the same, whatever happens to the process that writes them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from nmt.errors import NmtError
from nmt.training.append import Appender
from nmt.training.metrics import MetricsWriter, read_metrics


def tensorboard(folder: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {tag: [(point.step, point.value) for point in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def jsonl_curves(jsonl: Path) -> dict[str, list[tuple[int, float]]]:
    curves: dict[str, list[tuple[int, float]]] = {}
    for entry in read_metrics(jsonl):
        for name, value in entry.items():
            if name != "step":
                curves.setdefault(name, []).append((entry["step"], value))
    return curves


def assert_same_curves(run: Path) -> None:
    ours, theirs = jsonl_curves(run / "metrics.jsonl"), tensorboard(run / "tensorboard")
    assert ours.keys() == theirs.keys()
    for name, points in ours.items():
        assert [step for step, _ in points] == [step for step, _ in theirs[name]]
        assert [value for _, value in points] == pytest.approx([value for _, value in theirs[name]], rel=1e-6)


def writer(run: Path, resume_step: int | None = None) -> MetricsWriter:
    return MetricsWriter(run / "metrics.jsonl", run / "tensorboard", resume_step)


def test_a_line_is_one_json_object_that_begins_with_the_step(tmp_path: Path) -> None:
    metrics = writer(tmp_path)
    metrics.write(50, {"train/loss": 4.5, "train/perplexity": math.exp(4.5)})
    # Before close: each line is there as soon as it is written.
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    metrics.close()
    assert [json.loads(line) for line in lines] == [
        {"step": 50, "train/loss": 4.5, "train/perplexity": pytest.approx(90.017131)}
    ]
    assert lines[0].startswith('{"step": 50, ')


def test_tensorboard_has_the_same_names_and_values(tmp_path: Path) -> None:
    metrics = writer(tmp_path)
    for step in (50, 100, 150):
        metrics.write(step, {"train/loss": 10 / step, "train/learning_rate": 1e-3})
    metrics.write(150, {"dev/bleu": 31.25, "dev/chrf": 55.5})
    metrics.close()
    assert tensorboard(tmp_path / "tensorboard")["dev/bleu"] == [(150, 31.25)]
    assert_same_curves(tmp_path)


def test_numpy_and_torch_numbers_are_written_as_plain_ones(tmp_path: Path) -> None:
    import numpy as np
    import torch

    metrics = writer(tmp_path)
    metrics.write(1, {"a": np.float32(0.5), "b": torch.tensor(2.5)})  # type: ignore[dict-item]
    metrics.close()
    assert read_metrics(tmp_path / "metrics.jsonl") == [{"step": 1, "a": 0.5, "b": 2.5}]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_is_null_and_the_line_stays_valid_json(tmp_path: Path, value: float) -> None:
    metrics = writer(tmp_path)
    metrics.write(7, {"train/loss": value, "train/gradient_norm": 1.0})
    metrics.close()

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    line = (tmp_path / "metrics.jsonl").read_text()
    assert json.loads(line, parse_constant=refuse) == {"step": 7, "train/loss": None, "train/gradient_norm": 1.0}
    [(step, shown)] = tensorboard(tmp_path / "tensorboard")["train/loss"]
    assert step == 7
    assert shown == pytest.approx(value, nan_ok=True)


def test_resume_leaves_neither_hole_nor_double(tmp_path: Path) -> None:
    first = writer(tmp_path)
    for step in (50, 100, 150, 200):
        first.write(step, {"train/loss": 1.0})
        if step % 100 == 0:
            first.write(step, {"dev/bleu": 1.0})
    first.close()
    second = writer(tmp_path, resume_step=100)  # the checkpoint in last.pt
    for step in (150, 200, 250):
        second.write(step, {"train/loss": 2.0})
        if step % 100 == 0:
            second.write(step, {"dev/bleu": 2.0})
    second.close()
    curves = jsonl_curves(tmp_path / "metrics.jsonl")
    assert curves["train/loss"] == [(50, 1.0), (100, 1.0), (150, 2.0), (200, 2.0), (250, 2.0)]
    assert curves["dev/bleu"] == [(100, 1.0), (200, 2.0)]
    assert_same_curves(tmp_path)


def test_resume_at_the_last_step_keeps_everything(tmp_path: Path) -> None:
    first = writer(tmp_path)
    first.write(1, {"train/loss": 1.0})
    first.close()
    before = (tmp_path / "metrics.jsonl").read_bytes()
    writer(tmp_path, resume_step=1).close()
    assert (tmp_path / "metrics.jsonl").read_bytes() == before
    assert_same_curves(tmp_path)


def test_resume_drops_a_line_that_a_killed_process_left_unfinished(tmp_path: Path) -> None:
    jsonl = tmp_path / "metrics.jsonl"
    jsonl.write_text('{"step": 1, "train/loss": 1.0}\n{"step": 2, "trai')
    resumed = writer(tmp_path, resume_step=1)
    resumed.write(2, {"train/loss": 0.5})
    resumed.close()
    assert read_metrics(jsonl) == [{"step": 1, "train/loss": 1.0}, {"step": 2, "train/loss": 0.5}]


def test_resume_without_a_file_starts_one(tmp_path: Path) -> None:
    resumed = writer(tmp_path, resume_step=0)
    resumed.write(1, {"train/loss": 1.0})
    resumed.close()
    assert len(read_metrics(tmp_path / "metrics.jsonl")) == 1


def test_a_new_run_replaces_an_older_record(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 900}\n')
    fresh = writer(tmp_path)
    fresh.write(1, {"train/loss": 1.0})
    fresh.close()
    assert [entry["step"] for entry in read_metrics(tmp_path / "metrics.jsonl")] == [1]


@pytest.mark.parametrize("line", ["not json", '["step", 1]', '{"loss": 1}', '{"step": "1"}'])
def test_a_broken_line_in_the_middle_is_named(tmp_path: Path, line: str) -> None:
    jsonl = tmp_path / "metrics.jsonl"
    jsonl.write_text('{"step": 1}\n' + line + '\n{"step": 3}\n')
    with pytest.raises(NmtError, match=r"metrics\.jsonl, line 2: .*mend"):
        writer(tmp_path, resume_step=3)


def test_reading_a_record_that_does_not_exist_gives_nothing(tmp_path: Path) -> None:
    assert read_metrics(tmp_path / "metrics.jsonl") == []


def test_texts_and_figures_reach_tensorboard(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from nmt.plotting import plot_attention

    metrics = writer(tmp_path)
    metrics.text(100, "dev/samples", "source: a man\n\noutput: ein Mann")
    import numpy as np

    metrics.figure(100, "dev/attention", plot_attention(np.eye(2), ["一", "$x"], ["eins", "zwei"]))
    metrics.close()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    [text] = events.Tensors("dev/samples/text_summary")
    assert b"ein Mann" in text.tensor_proto.string_val[0]
    [image] = events.Images("dev/attention")
    assert (image.step, image.encoded_image_string[:4]) == (100, b"\x89PNG")
    assert image.width > 100
    assert image.height > 100


def test_step_is_not_a_value(tmp_path: Path) -> None:
    metrics = writer(tmp_path)
    with pytest.raises(ValueError, match="step"):
        metrics.write(1, {"step": 2.0})
    metrics.close()


def test_resume_cuts_pictures_and_texts_and_a_torn_end_from_tensorboard(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for attempt in (None, 1, 1):  # each within the same second
        metrics = writer(tmp_path, attempt)
        for step in (1, 2, 3) if attempt is None else (2, 3):
            metrics.write(step, {"train/loss": float(step)})
            metrics.text(step, "dev/samples", f"{attempt}")
        metrics.close()
        newest = max((tmp_path / "tensorboard").iterdir())
        newest.write_bytes(newest.read_bytes()[:-5])
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [point.step for point in events.Tensors("dev/samples/text_summary")] == [1, 2]
    assert [point.step for point in events.Scalars("train/loss")] == [1, 2, 3]


def test_a_validation_that_is_due_again_is_cut_and_the_updates_of_its_step_stay(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from nmt.plotting import plot_attention

    def validation(metrics: MetricsWriter, step: int) -> None:
        metrics.figure(step, "attention/1", plot_attention(np.eye(2), ["a", "b"], ["c", "d"]))
        metrics.text(step, "dev/samples", "text")
        metrics.write(step, {"dev/bleu": 1.0, "dev/loss": 2.0})

    import numpy as np

    metrics = writer(tmp_path)
    for step in (1, 2):
        metrics.write(step, {"train/loss": 1.0})
        validation(metrics, step)
    metrics.close()
    for _ in range(2):  # killed before its checkpoint, and taken up once more
        metrics = MetricsWriter(tmp_path / "metrics.jsonl", tmp_path / "tensorboard", 2, validation_due=True)
        validation(metrics, 2)
        metrics.close()
    steps = [1, 2]
    curves = jsonl_curves(tmp_path / "metrics.jsonl")
    found = {name: [step for step, _ in points] for name, points in curves.items()}
    assert found == dict.fromkeys(("train/loss", "dev/bleu", "dev/loss"), steps)
    assert_same_curves(tmp_path)
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Tensors("dev/samples/text_summary")] == steps
    assert [event.step for event in events.Images("attention/1")] == steps


def test_a_record_that_does_not_fit_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    import signal

    file = Appender(tmp_path / "a", fresh=True)
    file.write(b"x" * 1000)
    before, ignored = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1500, before[1]))
    try:
        with pytest.raises(NmtError, match=r"a: cannot be written: File too large\. Free space on that disk"):
            file.write(b"y" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    file.write(b"z")
    file.close()
    assert (tmp_path / "a").read_bytes() == b"x" * 1000 + b"z"
