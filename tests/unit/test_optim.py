"""Schedules, the moving average, and clipping."""

from __future__ import annotations

import math

import pytest
import torch

from nmt.config import ScheduleConfig
from nmt.training.optim import MovingAverage, Schedule, clip_gradients


def test_warm_up_rises_linearly_to_the_rate() -> None:
    schedule = Schedule(ScheduleConfig(kind="constant", warmup_steps=4), 0.1)
    assert [schedule.rate(step, 0.0) for step in (1, 2, 4, 5, 100)] == pytest.approx([0.025, 0.05, 0.1, 0.1, 0.1])


def test_cosine_falls_to_zero_over_the_budget() -> None:
    schedule = Schedule(ScheduleConfig(kind="cosine"), 0.2)
    assert schedule.rate(1, 0.0) == pytest.approx(0.2)
    assert schedule.rate(1, 0.5) == pytest.approx(0.1)
    assert schedule.rate(1, 1.0) == schedule.rate(1, 1.7) == pytest.approx(0.0, abs=1e-12)


def test_inverse_sqrt_falls_by_the_root_of_warm_up_over_steps() -> None:
    schedule = Schedule(ScheduleConfig(kind="inverse_sqrt", warmup_steps=100), 0.1)
    assert [schedule.rate(step, 0.9) for step in (50, 100, 400)] == pytest.approx([0.05, 0.1, 0.05])


def test_plateau_falls_after_more_than_patience_validations_without_a_better_score() -> None:
    schedule = Schedule(ScheduleConfig(kind="plateau", factor=0.5, patience=1), 1.0)
    rates = []
    for improved in (True, False, False, False, False, True, False, False):
        schedule.validated(improved)
        rates.append(schedule.rate(100, 0.5))
    assert rates == [1, 1, 0.5, 0.5, 0.25, 0.25, 0.25, 0.125]


def test_a_restored_schedule_goes_on_where_it_was() -> None:
    config = ScheduleConfig(kind="plateau", factor=0.5, patience=1)
    schedule, restored = Schedule(config, 1.0), Schedule(config, 1.0)
    for improved in (False, False, False):
        schedule.validated(improved)
    restored.load_state_dict(schedule.state_dict())
    for each in (schedule, restored):
        each.validated(False)
    assert restored.rate(9, 0.0) == schedule.rate(9, 0.0) == 0.25


def test_the_moving_average_is_the_recursion_of_its_definition() -> None:
    parameter = torch.nn.Parameter(torch.zeros(3))
    average = MovingAverage([parameter], 0.9)
    expected = 0.0
    for step in range(1, 200):
        with torch.no_grad():
            parameter.fill_(step)
        average.update(step, torch.tensor(0.0))
        decay = min(0.9, step / (step + 9))
        expected = decay * expected + (1 - decay) * step
    assert average.average[0].tolist() == pytest.approx([expected] * 3, rel=1e-5)
    average.swap()
    assert parameter.tolist() == pytest.approx([expected] * 3, rel=1e-5)
    average.swap()
    assert parameter.tolist() == [199.0] * 3


def test_clipping_bounds_the_common_norm_and_tells_the_one_before() -> None:
    parameters = [torch.nn.Parameter(torch.zeros(2)) for _ in range(2)]
    for parameter, values in zip(parameters, ([3.0, 0.0], [0.0, 4.0]), strict=True):
        parameter.grad = torch.tensor(values)
    assert float(clip_gradients(parameters, 1.0)) == pytest.approx(5.0)
    norm = math.sqrt(sum(float(p.grad.square().sum()) for p in parameters if p.grad is not None))
    assert norm == pytest.approx(1.0, abs=1e-4)
