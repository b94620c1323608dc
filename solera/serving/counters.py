"""What a service counts about itself, for Prometheus.

The counts are kept here, without a lock: only the event loop touches them, and a whole answer is added at once, which
`prometheus_client`'s own metrics cannot do. That library writes them in Prometheus' text format.
"""

import bisect
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
NATS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
VARIANCE = tuple(10.0**power for power in range(-9, 10))


class Histogram:
    """How many values lie at or below each edge."""

    def __init__(self, edges: Iterable[float]) -> None:
        self.edges = tuple(edges)
        self.counts, self.sum = [0] * (len(self.edges) + 1), 0.0

    def add(self, value: float) -> None:
        self.counts[bisect.bisect_left(self.edges, value)] += 1
        self.sum += value

    def add_all(self, values: np.ndarray) -> None:
        """Of a whole answer."""
        if values.size <= 8:
            for value in values.ravel().tolist():
                self.add(value)
            return
        places = np.searchsorted(self.edges, values.ravel(), side="left")
        for place, count in zip(*np.unique(places, return_counts=True), strict=True):
            self.counts[int(place)] += int(count)
        self.sum += float(values.sum(dtype=np.float64))

    @property
    def buckets(self) -> list[tuple[str, float]]:
        """Each edge, and how many values lie at or below it."""
        names = [*map("{:g}".format, self.edges), "+Inf"]
        return list(zip(names, np.cumsum(self.counts).tolist(), strict=True))


class _Collected(Collector):
    """Metrics as they are at one moment."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self.metrics = list(metrics)

    def collect(self) -> Iterable[Metric]:
        return self.metrics


class Counters:
    """Of one service, from its start. Only the event loop touches them."""

    def __init__(self, measures: Iterable[str], variance: bool, max_batch: int) -> None:
        self.requests: Counter[tuple[str, str, int]] = Counter()
        self.latency: dict[str, Histogram] = {}
        powers = [2**power for power in range(max_batch.bit_length()) if 2**power < max_batch]
        self.batches = Histogram([*powers, max_batch])
        self.uncertainty = {measure: Histogram(VARIANCE if variance else NATS) for measure in measures}
        self.rows = self.open = 0
        self.decisions: Counter[str] = Counter()

    def finished(self, path: str, method: str, status: int, seconds: float) -> None:
        """One request was answered."""
        self.requests[path, method, status] += 1
        self.latency.setdefault(path, Histogram(SECONDS)).add(seconds)

    def answered(self, said: Mapping[str, np.ndarray], accepted: np.ndarray | None) -> None:
        """What the student said about the rows of one request."""
        self.rows += len(said["mean"])
        for measure, histogram in self.uncertainty.items():
            histogram.add_all(said[measure])
        if accepted is not None:
            self.decisions["accepted"] += int(accepted.sum())
            self.decisions["rejected"] += int((~accepted).sum())

    def text(self, waiting: int, facts: Mapping[str, str]) -> str:
        """All of it, in Prometheus' text format."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Collected(self._metrics(waiting, facts)))
        return generate_latest(registry).decode()

    def _metrics(self, waiting: int, facts: Mapping[str, str]) -> Iterator[Metric]:
        info = GaugeMetricFamily("solera_info", "The student that is served.", labels=list(facts))
        info.add_metric(list(facts.values()), 1)
        yield info
        names = ["path", "method", "status"]
        requests = CounterMetricFamily("solera_requests", "Requests that were answered.", labels=names)
        for (path, method, status), count in sorted(self.requests.items()):
            requests.add_metric([path, method, str(status)], count)
        yield requests
        told = "From the first byte of a request to its answer."
        yield _histograms("solera_request_seconds", told, "path", dict(sorted(self.latency.items())))
        batches = HistogramMetricFamily("solera_batch_rows", "Rows that were computed together.")
        batches.add_metric([], self.batches.buckets, self.batches.sum)
        yield batches
        yield CounterMetricFamily("solera_rows", "Rows that were answered.", value=self.rows)
        decisions = CounterMetricFamily("solera_decisions", "Rows of requests with a threshold.", labels=["decision"])
        for name, count in sorted(self.decisions.items()):
            decisions.add_metric([name], count)
        yield decisions
        yield GaugeMetricFamily("solera_queue_rows", "Rows that wait.", value=waiting)
        told = "Requests that are not answered yet, this one included."
        yield GaugeMetricFamily("solera_open_requests", told, value=self.open)
        told = "What the student said about its certainty."
        yield _histograms("solera_uncertainty", told, "measure", self.uncertainty)


def _histograms(name: str, text: str, label: str, found: Mapping[str, Histogram]) -> HistogramMetricFamily:
    """One metric of several histograms, told apart by a label."""
    family = HistogramMetricFamily(name, text, labels=[label])
    for value, histogram in found.items():
        family.add_metric([value], histogram.buckets, histogram.sum)
    return family
