"""What a launch came to (`LaunchResult`) as a record of JSON and arrays, and back.

The executor is not believed blindly: a name, a type, a shape or an outcome that no launch can have is refused (`WireError`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from bitverdict.harness.judge.classify import LaunchResult
from bitverdict.harness.model.verdict import Outcome
from bitverdict.harness.sealed.remote.errors import WireError

MOST_OUTPUTS = 256
LONGEST_NAME = 400  # characters
TEXTS = ("layer", "message", "location", "order_hazard")
OF_OUTPUTS = ("low", "high", "value", "error", "unwritten")
"""Arrays that an output may have beside its words, each of its shape."""


class RealValues(NamedTuple):
    """`bitverdict.harness.judge.real_values.RealValues`, as they were sent."""

    value: np.ndarray
    error: np.ndarray


def encode_result(launch_result: LaunchResult) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """`launch_result` as a record and arrays."""
    arrays = {f"output {name}": np.asarray(words) for name, words in launch_result.outputs.items()}
    for name, (low, high) in launch_result.enclosures.items():
        arrays |= {f"low {name}": low, f"high {name}": high}
    for name, real in launch_result.real_values.items():
        arrays |= {f"value {name}": np.asarray(real.value, np.float64), f"error {name}": np.asarray(real.error, np.float64)}
    for name, unwritten in launch_result.unwritten.items():
        arrays[f"unwritten {name}"] = np.asarray(unwritten, np.bool_)
    record: dict[str, Any] = {name: getattr(launch_result, name) for name in TEXTS} | {
        "outcome": None if launch_result.outcome is None else str(launch_result.outcome),
        "details": launch_result.details,
        "dtypes": launch_result.dtypes,
        "hangs": launch_result.hangs,
        "reads_allocated": launch_result.reads_allocated,
        "elements": launch_result.elements,
        "unwritten_reads": launch_result.unwritten_reads,
        "launches": launch_result.launches,
        "recorded": launch_result.launch_record,
        "advice": launch_result.advice,
    }
    return json.loads(json.dumps(record, default=_json_value)), arrays


def decode_result(record: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> LaunchResult:
    """The `LaunchResult` that `encode_result` made a record and arrays of. WireError for anything that it makes of none."""
    try:
        return _decode(record, arrays)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise WireError(f"what the executor says of a launch is none: {type(error).__name__}: {error}") from None


def _decode(record: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> LaunchResult:
    outcome = None if record["outcome"] is None else Outcome(record["outcome"])
    if outcome in (Outcome.PASS, Outcome.INCONCLUSIVE, Outcome.CANCELLED):
        raise ValueError(f"a launch comes to no {outcome}")
    outputs = {name.removeprefix("output "): words for name, words in arrays.items() if name.startswith("output ")}
    dtypes = {_name(name): _name(dtype) for name, dtype in record["dtypes"].items()}
    if len(outputs) > MOST_OUTPUTS or dtypes.keys() != outputs.keys():
        raise ValueError(f"{len(outputs)} outputs, {len(dtypes)} dtypes of them")
    for name, words in outputs.items():
        dtype = getattr(torch, dtypes[name].removeprefix("torch."), None)
        if words.dtype.kind != "u" or not isinstance(dtype, torch.dtype) or dtype.itemsize != words.dtype.itemsize:
            raise ValueError(f"{name}: words of {words.dtype} for {dtypes[name]}")
    output_arrays: dict[str, dict[str, np.ndarray]] = {kind: {} for kind in OF_OUTPUTS}
    for key, array in arrays.items():
        kind, _, name = key.partition(" ")
        if kind == "output":
            continue
        asked = {"low": "u", "high": "u", "value": "f", "error": "f", "unwritten": "b"}[kind]
        if array.shape != outputs[name].shape or array.dtype.kind != asked:
            raise ValueError(f"{key}: of shape {array.shape} and {array.dtype}")
        output_arrays[kind][name] = array
    if (
        output_arrays["low"].keys() != output_arrays["high"].keys()
        or output_arrays["value"].keys() != output_arrays["error"].keys()
    ):
        raise ValueError("one half of a pair")
    return LaunchResult(
        outcome=outcome,
        **{name: _require_type(record[name], str) for name in TEXTS},
        details=_require_type(record["details"], dict),
        outputs=outputs,
        dtypes=dtypes,
        enclosures={name: (low, output_arrays["high"][name]) for name, low in output_arrays["low"].items()},
        real_values={name: RealValues(value, output_arrays["error"][name]) for name, value in output_arrays["value"].items()},
        hangs=tuple(_texts(entry, 2) for entry in record["hangs"]),
        reads_allocated=_require_type(record["reads_allocated"], bool),
        elements=_require_type(record["elements"], int),
        unwritten_reads=tuple(_texts(entry, 3) for entry in record["unwritten_reads"]),
        unwritten=output_arrays["unwritten"],
        launches=_require_type(record["launches"], int),
        launch_record=_require_type(record["recorded"], dict),
        advice=tuple(_require_type(entry, str) for entry in record["advice"]),
    )  # fmt: skip


def _name(value: Any) -> str:
    if len(_require_type(value, str)) > LONGEST_NAME:
        raise ValueError(f"a name of {len(value)} characters")
    return value


def _require_type(value: object, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{value!r:.100}: must be a {kind.__name__}")
    return value


def _texts(value: Any, count: int) -> Any:
    if len(value) != count:
        raise ValueError(f"{value!r:.100}: must be {count} texts")
    return tuple(_require_type(each, str) for each in value)


def _json_value(value: object) -> Any:
    """NumPy scalars and arrays as values of JSON; anything else by its text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)
