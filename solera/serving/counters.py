"""What a service counts about itself, in Prometheus' text format."""

import bisect
from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
NATS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
VARIANCE = tuple(10.0**power for power in range(-9, 10))


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def line(name: str, value: float, labels: Mapping[str, str] | None = None) -> str:
    """One sample."""
    inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in (labels or {}).items())
    return f"{name}{{{inside}}} {value}" if inside else f"{name} {value}"


def about(name: str, kind: str, text: str) -> list[str]:
    """The two lines that stand above a metric."""
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]


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

    def lines(self, name: str, labels: Mapping[str, str] | None = None) -> list[str]:
        """Buckets, each with all that are smaller; their sum and number."""
        known, total, lines = dict(labels or {}), 0, []
        for edge, count in zip((*map("{:g}".format, self.edges), "+Inf"), self.counts, strict=True):
            total += count
            lines.append(line(f"{name}_bucket", total, {**known, "le": edge}))
        return [*lines, line(f"{name}_sum", self.sum, known), line(f"{name}_count", total, known)]


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
        """All of it."""
        lines = [*about("solera_info", "gauge", "The student that is served."), line("solera_info", 1, facts)]
        lines += about("solera_requests_total", "counter", "Requests that were answered.")
        for (path, method, status), count in sorted(self.requests.items()):
            labels = {"path": path, "method": method, "status": str(status)}
            lines.append(line("solera_requests_total", count, labels))
        lines += about("solera_request_seconds", "histogram", "From the first byte of a request to its answer.")
        for path, histogram in sorted(self.latency.items()):
            lines += histogram.lines("solera_request_seconds", {"path": path})
        lines += about("solera_batch_rows", "histogram", "Rows that were computed together.")
        lines += self.batches.lines("solera_batch_rows")
        lines += about("solera_rows_total", "counter", "Rows that were answered.")
        lines += [line("solera_rows_total", self.rows)]
        lines += about("solera_decisions_total", "counter", "Rows of requests with a threshold.")
        lines += [line("solera_decisions_total", n, {"decision": name}) for name, n in sorted(self.decisions.items())]
        lines += [*about("solera_queue_rows", "gauge", "Rows that wait."), line("solera_queue_rows", waiting)]
        lines += about("solera_open_requests", "gauge", "Requests that are not answered yet, this one included.")
        lines += [line("solera_open_requests", self.open)]
        lines += about("solera_uncertainty", "histogram", "What the student said about its certainty.")
        for measure, histogram in self.uncertainty.items():
            lines += histogram.lines("solera_uncertainty", {"measure": measure})
        return "\n".join(lines) + "\n"
