"""A GGUF file: metadata and tensors, read by the `gguf` package (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md)."""
from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy
from gguf import GGUFReader, GGUFValueType
from gguf.quants import dequantize
from numpy.typing import NDArray
from refusal import Refusal
from unread_keys import refuse_unread, says_no

# What the package and NumPy raise for a file that is not as its own numbers say.
BROKEN = (ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, TypeError, ValueError, struct.error)


@contextmanager
def refused_where_broken(path: Path) -> Iterator[None]:
    try:
        with numpy.errstate(all="ignore"):
            yield
    except BROKEN as error:
        raise Refusal(f"{path} is broken, truncated or not a GGUF file: {' '.join(str(error).split())}") from error


class _Reader(GGUFReader):
    """Reads a list as one part. The package makes several arrays an element, a minute for a vocabulary of 262,144."""

    def _get_field_parts(self, orig_offs: int, raw_type: int) -> tuple[int, list[Any], list[int], list[GGUFValueType]]:
        if raw_type != GGUFValueType.ARRAY:
            return super()._get_field_parts(orig_offs, raw_type)
        kind, count = struct.unpack_from("<IQ", self.data, orig_offs)
        at = orig_offs + 12
        if kind == GGUFValueType.STRING:
            values: list[Any] = []
            for _ in range(count):
                (length,) = struct.unpack_from("<Q", self.data, at)
                if length > len(self.data) - at - 8:
                    raise ValueError("a text is longer than the file")
                values.append(self.data[at + 8 : at + 8 + length].tobytes().decode("utf-8"))
                at += 8 + length
        else:
            type_of_values = self.gguf_scalar_to_np[GGUFValueType(kind)]
            array = numpy.frombuffer(self.data, type_of_values, count, at)
            values, at = array.tolist(), at + array.nbytes
        return at - orig_offs, [values], [0], [GGUFValueType.ARRAY]


class GgufFile:
    """`tensors` by name, in the file's order; `get` reads metadata and records it. Raises Refusal for what is no whole GGUF file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._asked: set[str] = set()
        with refused_where_broken(path):
            reader = _Reader(path)
            if reader.byte_order == "S":
                self.refuse("its numbers are big-endian; expected little-endian")
            self.tensors = {tensor.name: tensor for tensor in reader.tensors}
            self._fields = reader.fields
            self.architecture: str = self.get("general.architecture", str)
        self.header_bytes = reader.data[: reader.data_offset]

    def refuse(self, what: str) -> NoReturn:
        raise Refusal(f"{self.path}: {what}")

    def has(self, key: str) -> bool:
        """True if it is there and does not say that there is no such thing, as `expert_count` 0 does."""
        self._asked.add(key)
        return key in self._fields and not says_no(self._value(key))

    def _value(self, key: str) -> Any:
        field = self._fields[key]
        value = field.parts[-1] if isinstance(field.parts[-1], list) else field.contents()
        return value[0] if isinstance(value, list) and value and key.endswith("head_count_kv") and value == value[:1] * len(value) else value

    def refuse_unread(self) -> None:
        """Refuses a key of the architecture that was not asked for and that changes logits for all that is known."""
        prefix = f"{self.architecture}."
        stated = {key: self._value(key) for key in self._fields if key.startswith(prefix)}
        refuse_unread("gguf", self.path, stated, self._asked, prefix)

    def get(self, key: str, kind: type, fallback: Any = None) -> Any:
        """The value under a key, where {arch} stands for the architecture. Without a fallback the key must be there."""
        key = key.replace("{arch}", getattr(self, "architecture", ""))
        self._asked.add(key)
        if key not in self._fields:
            if fallback is None:
                self.refuse(f"its metadata lack '{key}'")
            return fallback
        value = self._value(key)
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            self.refuse(f"'{key}' is {str(value)[:60]}; expected {kind.__name__}")
        return value

    def array(self, name: str) -> NDArray[Any]:
        """A tensor's values, [outputs, inputs]: f32, or as they are in f16 and bf16 (as u16)."""
        kind = self.tensors[name].tensor_type.name
        if kind == "F16":
            return self.tensors[name].data
        return self.tensors[name].data.view(numpy.uint16) if kind == "BF16" else self.values(name)

    def values(self, name: str) -> NDArray[numpy.float32]:
        """The same in f32."""
        tensor = self.tensors[name]
        try:
            return dequantize(tensor.data, tensor.tensor_type)
        except NotImplementedError:
            return self.refuse(f"tensor {name} is of the type {tensor.tensor_type.name}, which the gguf package cannot dequantise")

    def stored_as(self, name: str) -> str:
        """The type of `array` in a .safetensors."""
        kind = self.tensors[name].tensor_type.name
        return kind if kind in ("F16", "BF16") else "F32"
