"""What a server counts, as Prometheus reads it."""

from __future__ import annotations

import re

from nmt.serving.metrics import Histogram, Metrics


def test_a_histogram_counts_what_is_at_or_below_each_bound() -> None:
    histogram = Histogram((1, 2.5))
    for value in (0.5, 1, 2, 3):
        histogram.add(value)
    assert [*histogram.lines("x")] == [
        'x_bucket{le="1"} 2', 'x_bucket{le="2.5"} 3', 'x_bucket{le="+Inf"} 4', "x_sum 6.500000", "x_count 4",
    ]  # fmt: skip


def test_every_line_is_a_comment_or_a_sample_and_every_name_has_a_type() -> None:
    metrics = Metrics()
    metrics.request("/translate", 200, 0.2)
    metrics.request("/translate", 503, 0.0)
    metrics.request("other", 404, 0.0)
    metrics.batch(3, 0.1)
    metrics.failure(ValueError())
    lines = metrics.text(waiting=7, running=2).splitlines()
    samples = [line for line in lines if not line.startswith("#")]
    types = {line.split()[2] for line in lines if line.startswith("# TYPE ")}
    for sample in samples:
        found = re.fullmatch(r'(\w+?)(_bucket|_sum|_count)?(\{\w+="[^"]*"(,\w+="[^"]*")*\})? [0-9.]+', sample)
        assert found, sample
        assert {found[1], f"{found[1]}{found[2] or ''}"} & types, sample
    for wanted in (
        'nmt_requests_total{path="/translate",status="200"} 1', 'nmt_requests_total{path="other",status="404"} 1',
        "nmt_sentences_total 3", "nmt_failed_batches_total 1", "nmt_queue_sentences 7", "nmt_running_sentences 2",
        "nmt_request_seconds_count 1",
        'nmt_batch_sentences_bucket{le="2"} 0', 'nmt_batch_sentences_bucket{le="4"} 1',
    ):  # fmt: skip
        assert wanted in samples
