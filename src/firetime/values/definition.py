"""A task as registered: its function, its options, and how its arguments travel."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

import msgspec

from firetime.values.errors import InvalidOption, InvalidTaskPayload
from firetime.values.ids import checked_name
from firetime.values.message import UNREADABLE
from firetime.values.options import TaskOptions

_encoder = msgspec.json.Encoder()
_call_decoder = msgspec.json.Decoder(tuple[list[msgspec.Raw], dict[str, msgspec.Raw]])
_any_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
_ENCODE_ERRORS = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)
_RESERVED = "delayed_tasks_"
NO_ARGUMENTS = b"[[],{}]"


class Definition:
    """One registered task. Made once, at import; never changes."""

    __slots__ = (
        "_decoders",
        "_fewest",
        "_most",
        "_quick_decoder",
        "_rest",
        "_rest_named",
        "_simple",
        "_value_decoder",
        "function",
        "is_coroutine",
        "name",
        "options",
        "signature",
    )

    def __init__(self, function: Callable[..., Any], name: str, options: TaskOptions) -> None:
        self.name = checked_name("name", name)
        if name.startswith(_RESERVED):
            raise InvalidOption(
                "name", name, f"a name that does not begin with {_RESERVED!r}, as firetime's metrics do"
            )
        self.function = function
        self.options = options
        self.is_coroutine = inspect.iscoroutinefunction(function)
        if self.is_coroutine and options.run_in == "process":
            raise InvalidOption("run_in", "process", "a def function: a coroutine runs on the worker's event loop")
        self.signature = inspect.signature(function)
        self._decoders, self._rest, self._rest_named = _argument_decoders(self.name, function, self.signature)
        self._simple = not self.signature.parameters
        self._fewest, self._most = _positional_bounds(self.signature)
        self._quick_decoder = _quick_decoder(self.name, function, self.signature)
        self._value_decoder = _value_decoder(function)

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        """Arguments as they travel, proved to come back as the types the task's parameters name.

        Raises ``InvalidTaskPayload`` when they do not fit the signature, or cannot be encoded or decoded again.
        """
        if kwargs or not self._fewest <= len(args) <= self._most:
            self._bind(args, kwargs)
        if self._simple:
            return NO_ARGUMENTS
        encoded = encode_call(self.name, args, kwargs)
        self.decode(encoded)
        return encoded

    def _bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        try:
            self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidTaskPayload(self.name, f"{error}; its signature is {self.name}{self.signature}") from None

    def decode(self, encoded: bytes | msgspec.Raw) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments as the types the task's parameters name; ``InvalidTaskPayload`` names the one that does not fit."""
        if self._quick_decoder is not None:
            try:
                positional, _ = self._quick_decoder.decode(encoded)
            except (msgspec.DecodeError, UnicodeDecodeError):
                # keyword arguments, more than there are parameters, or something wrong: one by one tells which
                return self._decode_each(encoded)
            return _given(positional), {}
        return self._decode_each(encoded)

    def _decode_each(self, encoded: bytes | msgspec.Raw) -> tuple[tuple[Any, ...], dict[str, Any]]:
        try:
            raw_args, raw_kwargs = _call_decoder.decode(encoded)
        except UNREADABLE as error:
            raise InvalidTaskPayload(self.name, f"its arguments cannot be read: {error}") from None
        args = tuple(self._decode_one(number, raw) for number, raw in enumerate(raw_args))
        return args, {name: self._decode_one(name, raw) for name, raw in raw_kwargs.items()}

    def decode_value(self, encoded: bytes) -> Any:
        """A stored result as the type the function says it returns (as plain JSON where it says nothing usable)."""
        return self._value_decoder.decode(encoded)

    def _decode_one(self, where: int | str, raw: msgspec.Raw) -> Any:
        decoder = self._decoders.get(where) or (self._rest if isinstance(where, int) else self._rest_named)
        try:
            return decoder.decode(raw)
        except UNREADABLE as error:
            named = self._parameter(where)
            raise InvalidTaskPayload(self.name, f"argument {named!r}: {error}") from None

    def _parameter(self, where: int | str) -> str:
        names = list(self.signature.parameters)
        return names[where] if isinstance(where, int) and where < len(names) else str(where)


def encode_call(task: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
    """Arguments as they travel; ``InvalidTaskPayload`` names the first that cannot be encoded."""
    try:
        return _encoded((args, kwargs))
    except _ENCODE_ERRORS as error:
        culprit = _culprit(args, kwargs)
        raise InvalidTaskPayload(task, f"argument {culprit} cannot be encoded: {error}") from None


def encode_value(task: str, value: Any) -> bytes:
    """A result as it is stored; ``InvalidTaskPayload`` when it cannot be."""
    try:
        return _encoded(value)
    except _ENCODE_ERRORS as error:
        reason = f"its result, {type(value).__name__}, cannot be encoded: {error}"
        raise InvalidTaskPayload(task, reason) from None


def _encoded(value: Any) -> bytes:
    encoded = _encoder.encode(value)
    # msgspec writes NaN and infinity as null, which would come back as None
    if b"null" in encoded and _has_no_json(msgspec.to_builtins(value)):
        raise ValueError("JSON has no NaN and no infinity")
    return encoded


def _has_no_json(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if hasattr(value, "values"):
        return any(map(_has_no_json, value.values()))
    return not isinstance(value, (str, bytes)) and hasattr(value, "__iter__") and any(map(_has_no_json, value))


def _culprit(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    named: list[tuple[str, Any]] = [(str(number + 1), value) for number, value in enumerate(args)]
    named += [(repr(name), value) for name, value in kwargs.items()]
    for name, value in named:
        try:
            _encoded(value)
        except _ENCODE_ERRORS:
            return f"{name} ({type(value).__name__})"
    return "list"


def _argument_decoders(
    task: str, function: Callable[..., Any], signature: inspect.Signature
) -> tuple[dict[int | str, msgspec.json.Decoder[Any]], msgspec.json.Decoder[Any], msgspec.json.Decoder[Any]]:
    hints = _hints(task, function)
    decoders: dict[int | str, msgspec.json.Decoder[Any]] = {}
    rest = rest_named = _any_decoder
    for number, parameter in enumerate(signature.parameters.values()):
        decoder = _decoder(task, parameter.name, hints.get(parameter.name, Any))
        if parameter.kind is parameter.VAR_POSITIONAL:
            rest = decoder
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            rest_named = decoder
            continue
        if parameter.kind is not parameter.KEYWORD_ONLY:
            decoders[number] = decoder
        if parameter.kind is not parameter.POSITIONAL_ONLY:
            decoders[parameter.name] = decoder
    return decoders, rest, rest_named


class _NoKeywords(msgspec.Struct, forbid_unknown_fields=True):
    """The empty object."""


def _quick_decoder(
    task: str, function: Callable[..., Any], signature: inspect.Signature
) -> msgspec.json.Decoder[tuple[msgspec.Struct, _NoKeywords]] | None:
    """Reads, in one step, the arguments of a call that gave all of them by position; None where that cannot be.

    One decoder a parameter costs 3 us a call, this one 0.5.
    """
    parameters = signature.parameters.values()
    if any(each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD, each.KEYWORD_ONLY) for each in parameters):
        return None
    hints = _hints(task, function)
    fields = [
        (f"p{number}", hints.get(each.name, Any), msgspec.field(default=msgspec.UNSET))
        for number, each in enumerate(parameters)
    ]
    positional = msgspec.defstruct("Positional", fields, array_like=True, forbid_unknown_fields=True)
    return msgspec.json.Decoder(tuple[positional, _NoKeywords])  # type: ignore[valid-type]


def _given(positional: msgspec.Struct) -> tuple[Any, ...]:
    """Those that were given: the others have their defaults."""
    values = msgspec.structs.astuple(positional)
    while values and values[-1] is msgspec.UNSET:
        values = values[:-1]
    return values


def _positional_bounds(signature: inspect.Signature) -> tuple[float, float]:
    """How few and how many arguments a call by position may have; none fits where one must be given by name."""
    parameters = signature.parameters.values()
    by_position = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    if any(each.kind is each.KEYWORD_ONLY and each.default is each.empty for each in parameters):
        return math.inf, -1
    fewest = sum(each.default is each.empty for each in by_position)
    more = any(each.kind is each.VAR_POSITIONAL for each in parameters)
    return fewest, math.inf if more else len(by_position)


def _value_decoder(function: Callable[..., Any]) -> msgspec.json.Decoder[Any]:
    try:
        return msgspec.json.Decoder(get_type_hints(inspect.unwrap(function)).get("return", Any))
    except (TypeError, NameError, RuntimeError):
        return _any_decoder


def _hints(task: str, function: Callable[..., Any]) -> dict[str, Any]:
    hinted = inspect.unwrap(function)
    try:
        return get_type_hints(hinted, include_extras=True)
    except NameError as error:
        closure = inspect.getclosurevars(hinted)
        try:
            return get_type_hints(hinted, localns={**closure.globals, **closure.nonlocals}, include_extras=True)
        except NameError:
            expected = f"annotations that exist at run time ({error}); import the type outside TYPE_CHECKING"
            raise InvalidOption("task", task, expected) from None


def _decoder(task: str, parameter: str, hint: Any) -> msgspec.json.Decoder[Any]:
    try:
        return msgspec.json.Decoder(hint)
    except (TypeError, RuntimeError, NameError) as error:
        raise InvalidOption(
            f"task {task!r}, parameter", parameter, f"a type that msgspec can decode ({error})"
        ) from None
