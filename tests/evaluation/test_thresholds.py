"""The threshold table, by brute force."""

import numpy as np
import pytest
from scipy.stats import binomtest

from solera.evaluation.thresholds import threshold_for_error, threshold_for_false_alarms, threshold_table
from solera.tasks import Classification, Regression


def columns(count=500, seed=0, ties=False):
    generator = np.random.default_rng(seed)
    total = generator.random(count)
    total = np.round(total, 1) if ties else total
    return {"correct": generator.random(count) > total, "total": total, "knowledge": generator.random(count)}


@pytest.mark.parametrize("ties", [False, True])
def test_the_table_is_what_counting_gives(ties):
    found = columns(ties=ties)
    table = threshold_table(found, Classification())
    assert set(table) == {"total", "knowledge"}
    for name, rows in table.items():
        for share, row in zip(np.arange(0, 0.55, 0.05), rows, strict=True):
            kept = found[name] <= row.threshold
            assert row.coverage == kept.mean()
            assert row.coverage >= 1 - share - 1e-9
            np.testing.assert_allclose(row.error, (~found["correct"][kept]).mean())
            assert row.low <= row.error <= row.high
            fewer = found[name] < row.threshold
            assert fewer.mean() < 1 - share + 1e-9  # no smaller threshold would keep as many
    errors = [row.error for row in table["total"]]
    assert errors[0] > errors[-1]


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("wanted", [0.0, 0.05, 0.2, 0.9])
def test_a_wanted_error_gets_the_most_coverage(ties, wanted):
    found = columns(ties=ties)
    best = 0.0
    for threshold in np.unique(found["total"]):
        kept = found["total"] <= threshold
        if (~found["correct"][kept]).mean() <= wanted:
            best = max(best, kept.mean())
    row = threshold_for_error(found, Classification(), wanted)
    assert (row.coverage if row else 0.0) == best
    assert row is None or row.error <= wanted


def test_the_interval_of_a_share_is_wilsons():
    found = columns()
    found["correct"][found["total"] < 0.6] = True  # no error among those
    for row in threshold_table(found, Classification())["total"]:
        kept = found["total"] <= row.threshold
        wrong = (~found["correct"][kept]).sum()
        wanted = binomtest(int(wrong), int(kept.sum())).proportion_ci(0.95, "wilson")
        np.testing.assert_allclose((row.low, row.high), (wanted.low, wanted.high), atol=1e-12)
    assert row.error == row.low == 0.0 < row.high


def test_false_alarms():
    familiar, other = columns(400), {"knowledge": np.random.default_rng(1).random(300) + 0.5}
    threshold, alarms, caught = threshold_for_false_alarms(familiar, other, 0.05)
    assert alarms <= 0.05
    assert caught == (other["knowledge"] > threshold).mean() > 0.4


def test_real_targets_leave_squared_errors():
    generator = np.random.default_rng(0)
    total = generator.random(300) + 0.1
    found = {"squared_error": total * generator.normal(size=300) ** 2, "total": total}
    table = threshold_table(found, Regression())["total"]
    assert table[-1].error < table[0].error
    np.testing.assert_allclose(table[0].error, found["squared_error"].mean())
