"""The service against its own description: whatever schemathesis makes of openapi.json, the answers keep to it."""

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
]


@schemathesis.serializer("application/x-npy", "application/x-npz")
def _bytes(_, value):
    return value if isinstance(value, bytes) else str(value).encode()


@pytest.mark.parametrize("mode", GenerationMode)
@pytest.mark.parametrize("service", ["digits_service", "rows_service"])
def test_made_up_requests_are_answered_as_described(service, mode, request):
    running = request.getfixturevalue(service)
    api = schemathesis.openapi.from_url(running.url + "/openapi.json")
    statuses = set()

    @settings(max_examples=60, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(api["/predict"]["POST"].as_strategy(mode))
    def ask(case):
        statuses.add(case.call_and_validate(checks=CHECKS, timeout=30).status_code)

    ask()
    assert statuses & ({200} if mode is GenerationMode.POSITIVE else {400, 415, 422}), statuses


def test_every_other_endpoint_answers_as_described(rows_service):
    api = schemathesis.openapi.from_url(rows_service.url + "/openapi.json")
    assert set(api) == {"/predict", "/health", "/model", "/metrics"}
    for path in ("/health", "/model", "/metrics"):
        case = api[path]["GET"].Case()
        assert case.call_and_validate(checks=CHECKS[:-1], timeout=30).status_code == 200
