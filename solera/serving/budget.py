"""How many bytes of large requests a service holds at once."""

from types import TracebackType

from solera.serving.refused import RefusedError

FREE = 65_536  # bytes of one request that are not counted: small requests always have room


class Lease:
    """The bytes of one request. Given back on the way out of `with`."""

    def __init__(self, budget: "Budget") -> None:
        self.budget, self.held = budget, 0

    def hold(self, size: int) -> None:
        """Holds `size` bytes from now on; a RefusedError if all requests together would hold too many."""
        counted = size if size > FREE else 0
        more = counted - self.held
        if more > 0 and self.budget.held + more > self.budget.most:
            if counted > self.budget.most:
                reason = (
                    f"this request needs {counted} bytes, the service holds at most {self.budget.most} of all requests "
                    "together: send fewer rows at a time, or start it with a larger --max-in-flight"
                )
                raise RefusedError(413, "body", reason)
            reason = f"large requests hold {self.budget.held} bytes already: try again in a second, or send fewer rows"
            raise RefusedError(503, "service", reason, {"Retry-After": "1"})
        self.budget.held += more
        self.held = counted

    def __enter__(self) -> "Lease":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.budget.held -= self.held
        self.held = 0


class Budget:
    """At most so many bytes of all requests above 64 kB. Only the event loop touches it."""

    def __init__(self, most: int) -> None:
        self.most, self.held = most, 0

    def lease(self) -> Lease:
        """For one request."""
        return Lease(self)
