"""Bad input over HTTP: always refused, with the field, the value and the remedy."""

import numpy as np
import pytest

from tests.serving.service import CLIENT, FEATURES, JSON, NPY, NPZ, packed, post
from tests.serving.test_serve_limits import claimed

ZEROS = np.zeros((1, 8, 8)).tolist()
HOLE = np.zeros((2, 1, 8, 8), np.float32)
HOLE[1, 0, 2, 3] = np.nan
BAD = {
    "not JSON": (b'{"inputs": [', JSON, 400, "body", "the body is not JSON"),
    "not UTF-8": (b'{"inputs": "\xff"}', JSON, 400, "body", "the body is not JSON"),
    "nothing": (b"", JSON, 400, "body", 'send {"inputs": [...]}'),
    "a list": (b"[1, 2]", JSON, 422, "inputs", "without inputs"),
    "no inputs": ({"input": ZEROS}, JSON, 422, "inputs", "without inputs"),
    "another key": ({"inputs": ZEROS, "treshold": 1}, JSON, 422, "treshold", "send only inputs, threshold, measure"),
    "null": ({"inputs": None}, JSON, 422, "inputs", "inputs is None, not a number"),
    "empty": ({"inputs": []}, JSON, 422, "inputs", "inputs is empty"),
    "empty rows": ({"inputs": [[]]}, JSON, 422, "inputs", "inputs is empty"),
    "shape": ({"inputs": [0] * 64}, JSON, 422, "inputs", "shape [64]: send float32 numbers of shape [1, 8, 8]"),
    "ragged": ({"inputs": [[[1, 2], [1]]]}, JSON, 422, "inputs", "ragged"),
    "text": ({"inputs": [[["1"] * 8] * 8]}, JSON, 422, "inputs[0][0][0]", "inputs[0][0][0] is '1', not a number"),
    "truth": ({"inputs": [[[True] + [0] * 7] * 8]}, JSON, 422, "inputs[0][0][0]", "is True, not a number"),
    "NaN": (b'{"inputs": [NaN]}', JSON, 422, "body", "NaN"),
    "Infinity": (b'{"inputs": [-Infinity]}', JSON, 422, "body", "-Infinity"),
    "1e999": (
        b'{"inputs": [[[' + b"1e999," * 7 + b"0]" + b",[0,0,0,0,0,0,0,0]" * 7 + b"]]}",
        JSON,
        422,
        None,
        "is inf",
    ),
    "beyond float32": (
        {"inputs": [[[1e300] * 8] * 8]},
        JSON,
        422,
        "inputs[0][0][0][0]",
        "1e+300, not a finite float32",
    ),
    "400 digits": ({"inputs": [[[10**400] * 8] * 8]}, JSON, 422, "inputs", "beyond float32"),
    "5000 digits": (b'{"inputs": ' + b"9" * 5000 + b"}", JSON, 400, "body", "not JSON"),
    "deep": (b'{"inputs": ' + b"[" * 90000 + b"]" * 90000 + b"}", JSON, None, None, "send"),
    "names": ({"inputs": {"age": 3}}, JSON, 422, "inputs", "this student knows no names"),
    "too large for it": ({"inputs": [[[3e38] * 8] * 8]}, JSON, 422, "inputs[0]", "check their units"),
    "threshold": ({"inputs": ZEROS, "threshold": "0.3"}, JSON, 422, "threshold", "threshold is '0.3'"),
    "threshold, truth": ({"inputs": ZEROS, "threshold": True}, JSON, 422, "threshold", "threshold is True"),
    "threshold, digits": ({"inputs": ZEROS, "threshold": 10**400}, JSON, 422, "threshold", "a finite number"),
    "measure": ({"inputs": ZEROS, "measure": "luck"}, JSON, 422, "measure", "choose one of total, data, knowledge"),
    "measure, list": ({"inputs": ZEROS, "measure": ["total"]}, JSON, 422, "measure", "choose one of"),
    "too large": ({"inputs": ZEROS * 2000}, JSON, 413, "body", "send at most 200000 bytes"),
    "form": (b"inputs=3", "application/x-www-form-urlencoded", 415, "Content-Type", "send application/json"),
    "no type": (b"{}", "", 415, "Content-Type", "is missing"),
    "npy: not one": (b"PK\x03\x04", NPY, 400, "inputs", "not a .npy file"),
    "npy: nothing": (b"", NPY, 400, "inputs", "not a .npy file"),
    "npy: cut": (packed(HOLE)[:-4], NPY, 400, "inputs", "508 bytes of numbers, its header says 512"),
    "npy: more": (packed(HOLE) + b"0", NPY, 400, "inputs", "send the whole file"),
    "npy: pickle": (packed(np.array([{}]), allow_pickle=True), NPY, 422, "inputs", "dtype object"),
    "npy: records": (packed(np.zeros(2, "f4,i4")), NPY, 422, "inputs", "dtype [('f0'"),
    "npy: text": (packed(np.array(["a"])), NPY, 422, "inputs", "dtype <U1"),
    "npy: complex": (packed(np.zeros((1, 8, 8), complex)), NPY, 422, "inputs", "dtype complex128"),
    "npy: truth": (packed(np.zeros((1, 8, 8), bool)), NPY, 422, "inputs", "dtype bool"),
    "npy: empty": (packed(np.zeros((0, 1, 8, 8))), NPY, 422, "inputs", "is empty"),
    "npy: shape": (packed(np.zeros((2, 8, 8))), NPY, 422, "inputs", "shape [2, 8, 8]"),
    "npy: NaN": (packed(HOLE), NPY, 422, "inputs[1][0][2][3]", "inputs[1][0][2][3] is nan"),
    "npy: a lie": (packed(HOLE).replace(b"(2, 1, 8, 8)", b"(9999999999)"), NPY, 400, "inputs", "not a .npy file"),
    "npy: a giant": (packed(HOLE).replace(b"(2, 1, 8, 8)", b"(2, 1, 8e9,)"), NPY, 400, "inputs", ".npy file"),
    "npy: claims": (
        packed(HOLE).replace(b"(2, 1, 8, 8)", b"(999999999,)"),
        NPY,
        400,
        "inputs",
        "header says 3999999996",
    ),
    "npy: 0 hides a giant": (claimed((0, 2**39, 2**39)), NPY, 422, "inputs", "beyond all memory"),
    "half a character": (b'{"inputs": [[1, 2]], "\\ud800": 1}', JSON, 422, None, "send only"),
    "twice": (b'{"inputs": [[1, 2]], "inputs": [[3, 4]]}', JSON, 422, "inputs", "'inputs' twice"),
    "threshold, twice": (b'{"inputs": [], "threshold": 1, "threshold": 2}', JSON, 422, "threshold", "twice"),
    "npz: not one": (b"abc", NPZ, 400, "body", "not a .npz file"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_with_a_reason(digits_service, case):
    content, kind, status, field, reason = BAD[case]
    answer = post(digits_service, content, kind)
    assert 400 <= answer.status_code < 500
    assert answer.status_code == (status or answer.status_code), answer.text
    problem = answer.json()
    assert problem["status"] == answer.status_code
    assert problem["field"] == (field or problem["field"])
    assert reason in problem["reason"]


@pytest.mark.parametrize(
    ("content", "path", "headers", "status", "reason"),
    [
        ({"inputs": ZEROS}, "/predict?threshold=much", {}, 422, "threshold is 'much'"),
        ({"inputs": ZEROS}, "/predict?threshold=nan", {}, 422, "threshold is nan"),
        ({"inputs": ZEROS}, "/predict?threshold=", {}, 422, "threshold is ''"),
        ({"inputs": ZEROS}, "/predict?measure=luck", {}, 422, "choose one of total, data, knowledge"),
        ({"inputs": ZEROS, "threshold": 1}, "/predict?threshold=2", {}, 422, "in the query and 1.0 in the body"),
        ({"inputs": ZEROS}, "/predict", {"Accept": "image/png"}, 406, "ask for application/json"),
        ({"inputs": ZEROS}, "/predict", {"Accept": "application/json;q=0"}, 406, "ask for application/json"),
        ({"inputs": ZEROS}, "/predict", {"Content-Encoding": "gzip"}, 415, "send the body as it is"),
        ({"inputs": ZEROS}, "/predictions", {}, 404, "see /docs"),
    ],
)
def test_bad_requests_are_refused_with_a_reason(digits_service, content, path, headers, status, reason):
    answer = CLIENT.post(digits_service.url + path, json=content, headers=headers)
    assert answer.status_code == status
    assert reason in answer.json()["reason"]


def test_bodies_without_a_length_are_limited_too(digits_service):
    def endless():
        for _ in range(60):
            yield b" " * 10_000

    answer = CLIENT.post(digits_service.url + "/predict", content=endless(), headers={"Content-Type": JSON})
    assert answer.status_code == 413
    assert "more than 200000 bytes" in answer.json()["reason"]


@pytest.mark.parametrize(
    ("inputs", "field", "reason"),
    [
        ({"age": 3, "blood pressure": 90}, "inputs", "lacks ['body mass index']"),
        ([dict.fromkeys(FEATURES, 1), dict.fromkeys([*FEATURES, "sex"], 1)], "inputs[1]", "has ['sex']"),
        ([dict.fromkeys(FEATURES, 1), [1, 2, 3]], "inputs[1]", "name the numbers of every row or of none"),
        (dict.fromkeys(FEATURES, "old"), "inputs.age", "inputs.age is 'old', not a number"),
        ([1, 2], "inputs", "shape [2]: send float32 numbers of shape [3] (one example) or [rows, 3]"),
    ],
)
def test_bad_rows_are_refused_by_name(rows_service, inputs, field, reason):
    answer = post(rows_service, {"inputs": inputs})
    assert answer.status_code == 422
    assert answer.json()["field"] == field
    assert reason in answer.json()["reason"]
