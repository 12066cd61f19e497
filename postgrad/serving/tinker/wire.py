"""The protocol's protobuf messages: training data in, tensors out. Declared here from the wire: a field is
its number and type. Bytes hold little-endian numbers.

Decoded into plain records; what does not fit is refused by the place where it stands.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from postgrad.serving.request_body import Refusal
from postgrad.system.json_text import shorten_value

Array = NDArray[Any]
Fields = dict[str, tuple[int, str]]

# "repeated" and "map" (from text) before a type; other words are messages. All singular fields are optional.
MESSAGES: dict[str, Fields] = {
    "SparseCsr": {"values": (1, "bytes"), "crow_indices": (2, "bytes"), "col_indices": (3, "bytes")},
    "Tensor": {"dense": (1, "bytes"), "sparse_csr": (2, "SparseCsr"), "dtype": (3, "int32"),
               "shape": (4, "repeated int64")},
    "EncodedText": {"tokens": (1, "bytes")},
    "Other": {},
    "Chunk": {"encoded_text": (1, "EncodedText"), "image": (2, "Other"), "dmel": (3, "Other")},
    "Datum": {"model_input": (1, "repeated Chunk"), "loss_fn_inputs": (2, "map Tensor"),
              "model_input_spans": (3, "repeated Other"), "loss_fn_input_spans": (4, "repeated Other")},
    "ConfigValue": {"number": (1, "double"), "text": (2, "string")},
    "ForwardBackwardRequest": {"model_id": (1, "string"), "seq_id": (2, "int32"),
                               "data": (3, "repeated Datum"), "loss_fn": (4, "string"),
                               "loss_fn_config": (5, "map double"), "forward_only": (6, "bool"),
                               "loss_fn_config_v2": (7, "map ConfigValue")},
    "BatchedTensor": {"data": (1, "bytes"), "offsets": (2, "bytes"), "dtype": (3, "int32"),
                      "trailing_shape": (4, "repeated int64")},
    "ArrayRecord": {"type_tag": (1, "string"), "fields": (2, "map BatchedTensor"),
                    "num_datums": (3, "int64")},
    "ForwardBackwardOutput": {"loss_fn_output_type": (1, "string"),
                              "loss_fn_outputs": (2, "repeated ArrayRecord"), "metrics": (3, "map double")},
    "TopkLogprobs": {"token_ids": (1, "bytes"), "logprobs": (2, "bytes"), "k": (3, "uint32"),
                     "length": (4, "uint32")},
    "SampledSequence": {"stop_reason": (1, "int32"), "tokens": (2, "bytes"), "logprobs": (3, "bytes"),
                        "topk_sampled_logprobs": (4, "TopkLogprobs")},
    "SampleResponse": {"sequences": (1, "repeated SampledSequence"), "prompt_logprobs": (2, "bytes"),
                       "topk_prompt_logprobs": (3, "TopkLogprobs"), "prompt_cache_hit_tokens": (4, "int32")},
}
TYPES = {"double": 1, "int64": 3, "int32": 5, "bool": 8, "string": 9, "message": 11, "bytes": 12,
         "uint32": 13}
FLOAT32, INT64, INT32, BFLOAT16 = 1, 2, 3, 4
DTYPES: dict[int, np.dtype[Any]] = {FLOAT32: np.dtype("<f4"), INT64: np.dtype("<i8"), INT32: np.dtype("<i4"),
                                    BFLOAT16: np.dtype("<u2")}
STOP_REASONS = {"stop": 0, "length": 1}
MOST_NUMBERS = 2**26  # in one tensor


@cache
def message_classes() -> dict[str, Any]:
    """The classes of MESSAGES, made by the protobuf package."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError as error:
        raise ValueError("training over the Tinker protocol needs the package protobuf: pip install "
                         "'postgrad[tinker]'.") from error
    file = descriptor_pb2.FileDescriptorProto(name="postgrad_tinker.proto", package="postgrad",
                                              syntax="proto2")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            label, _, bare = kind.rpartition(" ")
            if label == "map":
                entry = message.nested_type.add(name=f"{field.title().replace('_', '')}Entry")
                entry.options.map_entry = True
                add_field(entry, "key", 1, "string")
                add_field(entry, "value", 2, bare)
                add_field(message, field, number, f"{name}.{entry.name}", repeated=True)
            else:
                add_field(message, field, number, bare, repeated=label == "repeated")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"postgrad.{name}"))
            for name in MESSAGES}


def add_field(message: Any, name: str, number: int, kind: str, repeated: bool = False) -> None:
    field = message.field.add(name=name, number=number, label=3 if repeated else 1)
    field.type = TYPES.get(kind, TYPES["message"])
    if kind not in TYPES:
        field.type_name = f".postgrad.{kind}"


@dataclass(frozen=True, kw_only=True)
class TrainingDatum:
    """tokens [N]: what the model reads. inputs: the loss's columns by name, [N] or [N, K]."""

    tokens: Array
    inputs: Mapping[str, Array]


@dataclass(frozen=True, kw_only=True)
class PassRequest:
    """A forward, or forward and backward, pass over data."""

    model_id: str
    seq_id: int
    data: tuple[TrainingDatum, ...]
    loss: str
    config: Mapping[str, float | str]
    forward_only: bool


def read_pass_request(body: bytes) -> Any:
    """The message of a forward_backward request; `decode_pass` reads the data in it."""
    try:
        return message_classes()["ForwardBackwardRequest"].FromString(body)
    except ValueError:
        raise
    except Exception:  # protobuf's DecodeError
        raise Refusal("the body is no ForwardBackwardRequest in protobuf.") from None


def decode_pass(message: Any) -> PassRequest:
    config: dict[str, float | str] = dict(message.loss_fn_config)
    for name, value in message.loss_fn_config_v2.items():
        config[name] = value.text if value.HasField("text") else value.number
    data = tuple(decode_datum(datum, f"data[{i}]") for i, datum in enumerate(message.data))
    if not data:
        raise Refusal("data is empty: a pass needs at least one datum.")
    return PassRequest(model_id=message.model_id, seq_id=message.seq_id, data=data, loss=message.loss_fn,
                       config=config, forward_only=message.forward_only)


def decode_datum(datum: Any, place: str) -> TrainingDatum:
    parts = []
    for i, chunk in enumerate(datum.model_input):
        if not chunk.HasField("encoded_text"):
            kind = "an image" if chunk.HasField("image") else "sound" if chunk.HasField("dmel") else "empty"
            raise Refusal(f"{place}.model_input[{i}] is {kind}, and this server trains on text: send tokens.")
        parts.append(numbers(chunk.encoded_text.tokens, INT32, f"{place}.model_input[{i}]"))
    tokens = np.concatenate(parts).astype(np.int64) if parts else np.zeros(0, np.int64)
    if not len(tokens):
        raise Refusal(f"{place}.model_input has no token: a model needs at least one.")
    return TrainingDatum(tokens=tokens, inputs={name: decode_tensor(tensor, f"{place}.{name}"[:100])
                                                for name, tensor in datum.loss_fn_inputs.items()})


def decode_tensor(tensor: Any, place: str) -> Array:
    """int64 or float32, in its shape; a sparse one as a dense one."""
    shape = tuple(tensor.shape)
    if not tensor.HasField("sparse_csr"):
        values = widened(numbers(tensor.dense, tensor.dtype, place), tensor.dtype)
        shape = shape or (len(values),)
        if min(shape) < 0 or math.prod(shape) != len(values):
            raise Refusal(f"{place} has {len(values)} numbers, and its shape {shorten_value(list(shape))} "
                          "has others.")
        return values.reshape(shape)
    csr = tensor.sparse_csr
    values = widened(numbers(csr.values, tensor.dtype, place), tensor.dtype)
    rows, columns = (numbers(x, INT64, place) for x in (csr.crow_indices, csr.col_indices))
    fits = (len(shape) == 2 and 0 <= min(shape) and math.prod(shape) <= MOST_NUMBERS
            and len(rows) == shape[0] + 1 and rows[0] == 0 and (np.diff(rows) >= 0).all()
            and rows[-1] == len(values) == len(columns)
            and (not len(columns) or 0 <= columns.min() <= columns.max() < shape[1]))
    if not fits:
        raise Refusal(f"{place} is no sparse matrix: its rows and columns do not fit its shape "
                      f"{shorten_value(list(shape))}.")
    dense = np.zeros(shape, values.dtype)
    dense[np.repeat(np.arange(shape[0]), np.diff(rows)), columns] = values
    return dense


def numbers(data: bytes, dtype: int, place: str) -> Array:
    kind = DTYPES.get(dtype)
    if kind is None:
        raise Refusal(f"{place} has the dtype {dtype}, and {', '.join(map(str, DTYPES))} are known.")
    if len(data) % kind.itemsize:
        raise Refusal(f"{place} has {len(data)} bytes, which are no whole numbers of {kind.itemsize}.")
    if len(data) > MOST_NUMBERS * kind.itemsize:
        raise Refusal(f"{place} has over {MOST_NUMBERS:,} numbers, the most that are taken.")
    return np.frombuffer(data, kind)


def widened(values: Array, dtype: int) -> Array:
    if dtype == BFLOAT16:
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.int64) if dtype == INT32 else values.copy()


# what is sent

def encode_pass_output(logprobs: Sequence[Array], metrics: Mapping[str, float]) -> bytes:
    """logprobs: of each datum, in the shape of its targets."""
    classes = message_classes()
    out = classes["ForwardBackwardOutput"](loss_fn_output_type="ArrayRecord")
    out.metrics.update(metrics)
    for rows in runs_of_one_width(logprobs):
        record = out.loss_fn_outputs.add(type_tag="ArrayRecord", num_datums=len(rows))
        sizes = np.cumsum([0, *(row.size * 4 for row in rows)], dtype="<i8")
        field = record.fields["logprobs"]
        field.data, field.offsets, field.dtype = (b"".join(row.astype("<f4").tobytes() for row in rows),
                                                  sizes.tobytes(), FLOAT32)
        field.trailing_shape.extend(rows[0].shape[1:])
    encoded: bytes = out.SerializeToString()
    return encoded


def runs_of_one_width(rows: Sequence[Array]) -> list[list[Array]]:
    """Neighbours of the same trailing shape together, as a record holds them."""
    runs: list[list[Array]] = []
    for row in rows:
        if runs and runs[-1][0].shape[1:] == row.shape[1:]:
            runs[-1].append(row)
        else:
            runs.append([row])
    return runs


@dataclass(frozen=True, kw_only=True)
class SampledReply:
    """A sampled sequence. top: the likeliest tokens at each, where they were asked for."""

    tokens: Sequence[int]
    logprobs: Sequence[float]
    stop_reason: str
    top: Sequence[Sequence[tuple[int, float]]] | None = None


def encode_sample(replies: Sequence[SampledReply], prompt_logprobs: Sequence[float] | None = None,
                  prompt_top: Sequence[Sequence[tuple[int, float]]] | None = None) -> bytes:
    """prompt_logprobs: NaN where there is none."""
    out = message_classes()["SampleResponse"]()
    for reply in replies:
        sequence = out.sequences.add(stop_reason=STOP_REASONS[reply.stop_reason],
                                     tokens=np.asarray(reply.tokens, "<i4").tobytes(),
                                     logprobs=np.asarray(reply.logprobs, "<f4").tobytes())
        if reply.top is not None:
            put_top(sequence.topk_sampled_logprobs, reply.top)
    if prompt_logprobs is not None:
        out.prompt_logprobs = np.asarray(prompt_logprobs, "<f4").tobytes()
    if prompt_top is not None:
        put_top(out.topk_prompt_logprobs, prompt_top)
    encoded: bytes = out.SerializeToString()
    return encoded


NO_LOGPROB = -99999.0  # with token 0, in place of a missing entry


def put_top(message: Any, rows: Sequence[Sequence[tuple[int, float]]]) -> None:
    """A matrix of tokens and one of log-probs; short rows are filled up."""
    k = max((len(row) for row in rows), default=0)
    filled = [[*row, *[(0, NO_LOGPROB)] * (k - len(row))] for row in rows]
    message.k, message.length = k, len(rows)
    message.token_ids = np.array([[t for t, _ in row] for row in filled], "<i4").tobytes()
    message.logprobs = np.array([[p for _, p in row] for row in filled], "<f4").tobytes()


def decompress(body: bytes, most: int) -> bytes:
    """A zstd frame, of at most so many bytes when unpacked."""
    try:
        import zstandard
    except ImportError as error:
        raise ValueError("a compressed body needs the package zstandard: pip install "
                         "'postgrad[tinker]'.") from error
    try:
        reader = zstandard.ZstdDecompressor().stream_reader(body)
        plain: bytes = reader.read(most + 1)
    except zstandard.ZstdError:
        raise Refusal("the body is not compressed by zstd, as its Content-Encoding says.") from None
    if len(plain) > most:
        raise Refusal(f"the body unpacks to over {most:,} bytes, the most that is read.", 413)
    return plain
