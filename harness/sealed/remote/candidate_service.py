"""What the executor does for a candidate while a call of its launcher runs, on the device that is entered here.

Each question is answered, refused in torch's or the driver's own words, or it is one that no honest process asks (`WireError`).
Faults of launches stay in `Device.findings`. Operators are torch's own (`operators`), launches are the device's. Nothing here is
called by a name that the candidate gives, but through a table.
"""

from __future__ import annotations

import copy as copies
import json
import select
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from bitverdict.harness.emulator.cuda_tensors import (
    ACTIVE_WATCHES,
    CUDA,
    CudaTensor,
    _notify_host_read,
    move_tensor,
    tensors_in,
    written_arguments,
)
from bitverdict.harness.emulator.device import Device
from bitverdict.harness.emulator.faults import BadArgument, EmulatedFault, host_memory_is_short
from bitverdict.harness.emulator.frontend.arguments import refuse_cpu_tensors
from bitverdict.harness.model.paths import is_ours
from bitverdict.harness.model.protocols import for_the_launcher
from bitverdict.harness.model.torch_internals import FunctionModesOff, identity_of, name_of
from bitverdict.harness.sealed.remote.channel import Channel
from bitverdict.harness.sealed.remote.errors import WireError
from bitverdict.harness.sealed.remote.memory import CONSTRUCTORS, MOST_PROGRAMS, function_called, tensor_layout
from bitverdict.harness.sealed.remote.operator_arguments import check_given
from bitverdict.harness.sealed.remote.operators import operator
from bitverdict.harness.sealed.remote.wire import DTYPES, Decoder, Encoder, differentiable, listing, look_up, text, whole_number

MOST_TENSORS = 1 << 20  # that a candidate may hold at a time
LARGEST_NUMBER = 1 << 62
MOST_VIEWS = 1 << 16  # that are asked for beside one question
WITHOUT_AN_ANSWER = ("launch", "construct")
MOST_LATE_QUESTIONS = 100  # questions after a return that are told
MOST_PROGRAM = 64 << 20  # bytes of one
READ_BY = ("a copy to the host", "tolist", "numpy", "print")
_RANDOM = torch.Tag.nondeterministic_seeded
_REVEALING_TAGS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
"""Of operators whose results say something of the words, though they are no tensors, or by their shape."""


class CandidateService:
    """The tensors that a candidate holds, and what it may ask while a call runs."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.tensors: dict[int, CudaTensor] = {}
        self.numbers: dict[int, int] = {}  # id of a tensor of `tensors` -> its number
        self.told: Counter = Counter()  # number -> how often the candidate was told of it: it releases each once
        self.programs: list[bytes] = []
        self.device: Device | None = None
        self.moving: list[torch.Tensor] = []  # what the last call returned that has gradients
        self._call, self._numbered = 0, 0
        self._late: list[str] = []
        self._failed: Exception | None = None  # what nobody has been told of: it came of what had no answer
        self._unmade: dict[int, Exception] = {}  # of tensors that the candidate numbered, why there is none
        self._at = ""  # the launcher's line of the question that is answered

    @contextmanager
    def serve_call(self, call: int, device: Device) -> Iterator[None]:
        """Questions of the call numbered `call` are answered by `device`; a fault of it outweighs whatever else comes."""
        self._call, self.device, self._at = call, device, ""
        if device.origins is not None:
            device.origins.where = lambda: self._at
        before = len(device.findings)
        try:
            yield
        except Exception as error:
            if len(device.findings) > before:
                raise device.findings[before] from error
            raise
        finally:
            self._call, self.device, self._at, self._failed = 0, None, "", None
        if len(device.findings) > before:
            raise device.findings[before]

    def until_done(self, do: str) -> tuple[dict[str, Any], list[bytearray]]:
        """Answer questions until the frame that ends `do`."""
        while True:
            frame, buffers = self.channel.receive()
            if "ask" not in frame:
                if frame.get("done") != do:
                    raise WireError(f"the end of {frame.get('done')!r:.40}, which was not asked")
                if self._call:
                    self._make_views(frame)
                if self._failed is not None:
                    raise self._failed
                return frame, buffers
            self._answer(frame, buffers)

    def after_return(self) -> str:
        """What the candidate asked for since its last call returned, in a few words; empty for nothing. All of it is refused."""
        while self._call == 0 and select.select([self.channel.fileno()], [], [], 0)[0]:
            frame, _ = self.channel.receive()
            if "ask" not in frame:
                raise WireError("an end of nothing")
            self._refuse_late(frame)
        said, self._late = self._late, []
        return ", ".join(dict.fromkeys(said))

    def _answer(self, frame: dict[str, object], buffers: list[bytearray]) -> None:
        question = text(frame["ask"], 40)
        if self._call == 0 or frame.get("call") != self._call:
            self._refuse_late(frame)
            return
        self._make_views(frame)
        for number in listing(frame.get("released", [])):
            self._release(number)
        self._at = text(frame.get("at", ""), 1000)
        serve, unanswered_question = _QUESTIONS.get(question), frame.get("told") is True
        if serve is None or (unanswered_question and question not in WITHOUT_AN_ANSWER):
            raise WireError(f"question {question!r}: there is none{' without an answer' if unanswered_question else ''}")
        decode, encode, answer = Decoder(buffers, self.tensor), Encoder(self.encode_tensor), dict[str, Any]()
        if unanswered_question and question == "construct":
            self._make(frame, lambda keep: self.construct(frame, decode, keep))
        elif self._failed is None:
            answer = self._keep_failure(lambda: serve(self, frame, decode, encode))
        elif question == "launch":
            self._program(frame, decode)  # a later launch names it by its number
        if unanswered_question:
            return
        if self._failed is not None:
            answer, encode.buffers, self._failed = _encode_error(self._failed), [], None
        self.channel.send(answer, encode.buffers)

    def _keep_failure(self, served: Callable[[], dict[str, object]]) -> dict[str, Any]:
        """What `served` gives. What it raises for the launcher is kept in `_failed` until that can be told."""
        try:
            return served()
        except WireError:
            raise
        except Exception as error:
            if not isinstance(error, EmulatedFault) and not _launchers(error):
                self.channel.broken = f"the executor failed: {type(error).__name__}"
                raise
            self._failed = self._failed or error
            return {}

    def _make_views(self, frame: Mapping[str, object]) -> None:
        """What a frame says of views that were asked for before it, each with the number that the candidate gave it."""
        for each in listing(frame.get("views", []), MOST_VIEWS):
            if type(each) is not dict:
                raise WireError("a view that is no object")
            self._make(each, partial(self.operate, each, Decoder((), self.tensor)))

    def _refuse_late(self, frame: Mapping[str, object]) -> None:
        what, about = text(frame.get("ask"), 40), frame.get("operator", frame.get("function"))
        if len(self._late) < MOST_LATE_QUESTIONS:
            self._late.append(f"{what} {text(about, 200)}" if about is not None else what)

    def _make(self, said: Mapping[str, object], make: Callable[[Encoder], dict[str, object]]) -> None:
        """Make a tensor that has a number of the candidate's already; where `make` fails, it is missing from then on."""
        number, lies = whole_number(said.get("as"), -LARGEST_NUMBER, -1), said.get("lies")

        def keep(tensor: CudaTensor) -> dict[str, Any]:
            if lies is not None and lies != tensor_layout(tensor.inner):
                raise WireError(f"a tensor that lies otherwise than was said: {lies!r:.200}")
            self._keep(tensor, number)
            return {}

        self._keep_failure(lambda: make(Encoder(keep)))
        if number not in self.tensors and self._failed is not None:
            self._unmade[number] = self._failed

    # -- tensors ---------------------------------------------------------------------------------------------------------------
    def encode_tensor(self, tensor: CudaTensor) -> dict[str, Any]:
        """`tensor` as the candidate is told of it."""
        number = self.numbers.get(id(tensor))
        if number is None:
            self._numbered += 1
            number = self._numbered
            self._keep(tensor, number)
        else:
            self.told[number] += 1
        return {"tensor": number, **_describe_layout(tensor)} | ({"grad": True} if tensor.requires_grad else {})

    def _keep(self, tensor: CudaTensor, number: int) -> None:
        """The candidate knows `tensor` by that number now."""
        if len(self.tensors) >= MOST_TENSORS:
            raise WireError(f"more than {MOST_TENSORS} tensors at a time")
        if number in self.tensors or id(tensor) in self.numbers:
            raise WireError(f"a tensor {number} beside another")
        self.tensors[number], self.numbers[id(tensor)], self.told[number] = tensor, number, 1

    def _release(self, number: object) -> None:
        """The candidate holds the tensor once less."""
        if type(number) is int and self._unmade.pop(number, None) is not None:
            return
        if type(number) is not int or number not in self.tensors:
            raise WireError(f"no tensor {number!r:.40}")
        self.told[number] -= 1
        if not self.told[number]:
            del self.told[number], self.numbers[id(self.tensors.pop(number))]

    def tensor(self, record: Mapping[str, object]) -> CudaTensor:
        """The tensor that the candidate names."""
        number = whole_number(record["tensor"], -LARGEST_NUMBER, LARGEST_NUMBER)
        found = self.tensors.get(number)
        if number in self._unmade:
            raise self._unmade[number]
        if found is None:
            raise WireError(f"no tensor {record['tensor']}")
        return found

    def returned_tensor(self, said: Mapping[str, object]) -> CudaTensor:
        """As `tensor`, of what a call returned; those that have gradients over there are kept in `moving`."""
        found = self.tensor(said)
        if said.get("grad") is True and differentiable(found.dtype) and not any(found is each for each in self.moving):
            if not found.requires_grad:
                self.moving.append(found)
        return found

    # -- questions -------------------------------------------------------------------------------------------------------------
    def operate(self, frame: Mapping[str, object], decode: Decoder, encode: Encoder) -> dict[str, Any]:
        function = operator(text(frame.get("operator"), 200))
        args, kwargs = self._decode_arguments(frame, decode)
        check_given(function, args, kwargs)
        written_tensors = [args[place] if place < len(args) else kwargs.get(name) for place, name in written_arguments(function)]
        operator_name = name_of(function)
        with FunctionModesOff(), torch.no_grad(), self._random(frame, decode, encode, function) as random:
            try:
                result = for_the_launcher(CudaTensor.__torch_dispatch__, function, (), args, kwargs)
            except Exception:
                self._mark_known(args, kwargs, operator_name)  # what torch refuses may hang on the words
                raise
        if not _REVEALING_TAGS.isdisjoint(function.tags):
            self._mark_known(args, kwargs, operator_name)
        if any(type(tensor) is not CudaTensor for tensor in written_tensors):
            for tensor in tensors_in((args, kwargs)):
                if type(tensor) is CudaTensor:
                    _notify_host_read(tensor, "a copy to the host")
        if not written_tensors:
            return {"result": encode(result), **random()}
        placed = torch.Tag.inplace_view in function.tags
        told = [
            (_describe_layout(tensor) if placed else None) if type(tensor) is CudaTensor else encode(tensor)
            for tensor in written_tensors
        ]
        return {"written": told, **random()}

    def construct(self, frame: Mapping[str, object], decode: Decoder, encode: Encoder) -> dict[str, Any]:
        name = text(frame.get("function"), 40)
        if name not in _CONSTRUCTOR_FUNCTIONS:
            raise WireError(f"function {name!r}: is not one that allocates")
        args, kwargs = self._decode_arguments(frame, decode)
        if {"device", "out", "requires_grad", "generator", "pin_memory"} & set(kwargs):
            raise WireError(f"function {name}: is given {sorted(kwargs)}")
        default, before = look_up(DTYPES, frame.get("default"), "dtype"), torch.get_default_dtype()
        if not default.is_floating_point or default.itemsize == 1:
            raise WireError(f"a default dtype of {default}")
        torch.set_default_dtype(default)
        try:
            with torch.no_grad():
                made = for_the_launcher(_CONSTRUCTOR_FUNCTIONS[name], *args, **kwargs, device=CUDA)
        finally:
            torch.set_default_dtype(before)
        return {"result": encode(made)}

    def where(self, frame: Mapping[str, object], decode: Decoder, encode: Encoder) -> dict[str, Any]:
        """Where a tensor lies that the candidate numbered."""
        return {"result": _describe_layout(self.tensor(frame))}

    def place(self, frame: dict[str, object], decode: Decoder, encode: Encoder) -> dict[str, Any]:
        tensor = decode(frame.get("host"))
        if type(tensor) is not torch.Tensor:
            raise WireError("what is placed is no tensor of the CPU")
        by = text(frame.get("by"), 40)
        if not by.isidentifier():
            raise WireError(f"what is placed by {by!r}")
        with FunctionModesOff():
            if ACTIVE_WATCHES:
                ACTIVE_WATCHES[-1].on_upload(tensor, by)
            made = CudaTensor(tensor.detach())
        return {"result": encode(made)}

    def copy(self, frame: Mapping[str, object], decode: Decoder, encode: Encoder) -> dict[str, Any]:
        found = self.tensor(frame)
        with FunctionModesOff():
            made = copies.deepcopy(found)
        return {"result": encode(made)}

    def read(self, frame: Mapping[str, object], decode: Decoder, encode: Encoder) -> dict[str, Any]:
        tensor, reader = self.tensor(frame), text(frame.get("by"), 40)
        if reader not in READ_BY:
            raise WireError(f"read by {reader!r}: there is no such call")
        dtype, memory_format = decode(frame.get("dtype")), decode(frame.get("format"))
        if not isinstance(dtype, torch.dtype) or not isinstance(memory_format, torch.memory_format):
            raise WireError("read as no dtype, or in no memory format")
        with FunctionModesOff(), torch.no_grad():
            if reader == "a copy to the host":
                there = move_tensor(tensor, False, dtype=dtype, copy=True, memory_format=memory_format)
            else:
                _notify_host_read(tensor, reader)
                there = tensor.inner
        return {"result": encode.strided_host(there)}

    def launch(self, frame: Mapping[str, object], decode: Decoder, encode: Encoder) -> dict[str, Any]:
        assert self.device is not None
        program = self._program(frame, decode)
        grid = tuple(whole_number(item, -(1 << 63), 1 << 63) for item in listing(frame.get("grid"), 3))
        names = [text(item, 1000) for item in listing(frame.get("names"), 4096)]
        values = [decode(item) for item in listing(frame.get("values"), 4096)]
        constants, about = frame.get("constants"), frame.get("about")
        if len(grid) != 3 or len(names) != len(values) or type(constants) is not dict or type(about) is not dict:
            raise WireError("a launch of no three numbers, or of other arguments than names")
        if any(type(item) is not int for item in constants.values()) or len(json.dumps(constants)) > 1 << 16:
            raise WireError("constants that are no whole numbers")
        refuse_cpu_tensors(values)
        metadata = Metadata.from_record(about)
        with FunctionModesOff(), torch.no_grad():
            for_the_launcher(self.device.run, program, metadata, grid, names, values, constants)
        return {}

    def report_fault(self, frame: Mapping[str, object], decode: Decoder, encode: Encoder) -> dict[str, Any]:
        """A fault that Triton's launcher finds before the launch, in the candidate's process: a constant compiled in."""
        assert self.device is not None
        outcome, message, location = (text(frame.get(name), 4000) for name in ("outcome", "message", "location"))
        if outcome != "false hint":
            raise WireError(f"a fault {outcome!r:.40} that the candidate's process cannot know")
        self.device.record_finding(EmulatedFault(outcome, message, location))
        return {}

    def reach(self, frame: Mapping[str, object], decode: Decoder, encode: Encoder) -> dict[str, Any]:
        assert self.device is not None
        tensors = [decode(each) for each in listing(frame.get("tensors"), 4096)]
        if not all(type(each) is CudaTensor for each in tensors):
            raise WireError("reachable is what is no tensor of the GPU")
        self.device.reach(*tensors)
        return {}

    # -- what they share -------------------------------------------------------------------------------------------------------
    def _decode_arguments(self, frame: Mapping[str, object], decode: Decoder) -> tuple[tuple, dict[str, Any]]:
        named = frame.get("kwargs")
        if type(named) is not dict:
            raise WireError("keywords that are no object")
        return tuple(decode(each) for each in listing(frame.get("args"))), {
            text(name, 100): decode(each) for name, each in named.items()
        }

    @contextmanager
    def _random(self, frame: Mapping[str, object], decode: Decoder, encode: Encoder, function: Any) -> Iterator[Callable[[], dict]]:
        """Numbers are drawn from the generator of the candidate's, whose state came with the question."""
        if _RANDOM not in function.tags:
            yield dict
            return
        before, given = torch.default_generator.get_state(), decode(frame.get("random"))
        if not isinstance(given, torch.Tensor) or given.dtype is not torch.uint8 or given.shape != before.shape:
            raise WireError("no state of a generator")
        after: list[Any] = []
        try:
            torch.default_generator.set_state(given)
            yield lambda: {"random": encode(after[0])}
        finally:
            after.append(torch.default_generator.get_state())
            torch.default_generator.set_state(before)

    def _mark_known(self, args: tuple, kwargs: dict, reader: str) -> None:
        """The candidate's process knows something of the words of each tensor, where their origins are followed."""
        origins = None if self.device is None else self.device.origins
        if origins is None:
            return
        for each in tensors_in((args, kwargs)):
            if type(each) is CudaTensor:
                origins.note_host_read(each.inner, reader)

    def _program(self, frame: Mapping[str, object], decode: Decoder) -> bytes:
        number, sent = whole_number(frame.get("program"), 0, MOST_PROGRAMS), frame.get("sent")
        if sent is not None:
            held = decode.buffer(sent)
            if number == 0:
                self.programs.clear()
            if number != len(self.programs) or number >= MOST_PROGRAMS or len(held) > MOST_PROGRAM:
                raise WireError(f"program {number} of {len(held)} bytes, where {len(self.programs)} are known")
            self.programs.append(bytes(held))
        if number >= len(self.programs):
            raise WireError(f"no program {number}")
        return self.programs[number]


class Metadata(SimpleNamespace):
    """What a launch's metadata say, of those that are plain."""

    name: str

    @classmethod
    def from_record(cls, said: Mapping[str, object]) -> Metadata:
        if len(said) > 200 or any(type(each) not in (str, int, float, bool, type(None)) for each in said.values()):
            raise WireError("metadata that are not plain")
        if not all(name.isidentifier() and not name.startswith("_") for name in said):
            raise WireError("metadata of names that are none")
        return cls(**{**said, "name": text(said.get("name"), 1000), "enable_fp_fusion": said.get("enable_fp_fusion") is not False})

    def _asdict(self) -> dict[str, Any]:
        return dict(vars(self))


def _encode_error(error: Exception) -> dict[str, Any]:
    """What the candidate's process is told of what was raised for it."""
    if isinstance(error, EmulatedFault):
        details = {str(name): value for name, value in error.details.items() if type(value) in (str, int, float, bool)}
        return {"fault": [error.outcome, error.message, error.location, details]}
    return {"raised": [type(error).__name__, str(error)[:4000]]}


def _describe_layout(tensor: CudaTensor) -> dict[str, Any]:
    """Where `tensor` lies."""
    inner = tensor.inner
    storage = inner.untyped_storage()
    return {
        "dtype": str(inner.dtype)[6:],
        "size": list(inner.shape),
        "stride": list(inner.stride()),
        "offset": inner.storage_offset(),
        "address": inner.data_ptr(),
        "storage": [identity_of(storage), storage.nbytes(), storage.data_ptr()],
    } | ({"marks": [inner.is_neg(), inner.is_conj()]} if inner.is_neg() or inner.is_conj() else {})


def _launchers(error: BaseException) -> bool:
    """Whether what was raised is the launcher's: what it was called with is refused by torch or in the driver's own words, or there
    is no memory left for what it asks."""
    if isinstance(error, BadArgument) or host_memory_is_short(error) or str(error).startswith("Triton Error [CUDA]"):
        return True
    for frame, _ in reversed(list(traceback.walk_tb(error.__traceback__))):
        if frame.f_code.co_name.endswith("for_the_launcher"):
            return True
        if is_ours(Path(frame.f_code.co_filename)):
            return False
    return False


_CONSTRUCTOR_FUNCTIONS = {name: function_called(name) for name in CONSTRUCTORS}
_QUESTIONS: dict[str, Callable[[CandidateService, dict[str, Any], Decoder, Encoder], dict[str, Any]]] = {
    "operate": CandidateService.operate,
    "construct": CandidateService.construct,
    "where": CandidateService.where,
    "place": CandidateService.place,
    "copy": CandidateService.copy,
    "read": CandidateService.read,
    "launch": CandidateService.launch,
    "found": CandidateService.report_fault,
    "reach": CandidateService.reach,
}

__all__ = ["CandidateService"]
# One file because all that an untrusted process may ask for can be read in one place.
