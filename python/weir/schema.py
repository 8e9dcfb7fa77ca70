"""The JSON schema of a function's parameters, from its annotations."""

import inspect
import types
import typing
from collections.abc import Callable
from typing import Any, Literal

_PLAIN: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    Any: {},
}


def schema_of(hint: Any) -> dict[str, Any]:
    """The JSON schema of an annotation. Raises TypeError for one that JSON has not."""
    if hint in _PLAIN:
        return dict(_PLAIN[hint])
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return {"enum": list(inner)}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [schema_of(one) for one in inner]}
    if hint is list or origin is list:
        return {"type": "array", "items": schema_of(inner[0])} if inner else {"type": "array"}
    if hint is dict or origin is dict:
        return {"type": "object", "additionalProperties": schema_of(inner[1])} if inner else {"type": "object"}
    raise TypeError(f"{hint!r}: want str, int, float, bool, list, dict, Literal, a union of them, or Any")


def fits(value: Any, schema: dict[str, Any]) -> bool:
    """Whether a value of JSON is as a schema of schema_of says."""
    if "enum" in schema:
        return value in schema["enum"]
    if "anyOf" in schema:
        return any(fits(value, one) for one in schema["anyOf"])
    match schema.get("type"):
        case "string":
            return isinstance(value, str)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case "null":
            return value is None
        case "array":
            return isinstance(value, list) and all(fits(one, schema.get("items", {})) for one in value)
        case "object":
            return isinstance(value, dict) and all(fits(one, schema.get("additionalProperties", {})) for one in value.values())
    return True


def parameters_of(function: Callable[..., Any], leave_out: Any) -> tuple[dict[str, Any], str]:
    """The JSON schema of a function's parameters, and the name of the parameter whose annotation is leave_out; "" for none."""
    hints = typing.get_type_hints(function)
    properties: dict[str, Any] = {}
    required: list[str] = []
    special = ""
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise TypeError(f"{function.__name__}: {name}: a tool's parameters have names")
        if name not in hints:
            raise TypeError(f"{function.__name__}: {name}: want an annotation, such as {name}: str")
        if hints[name] is leave_out:
            special = name
            continue
        try:
            properties[name] = schema_of(hints[name])
        except TypeError as error:
            raise TypeError(f"{function.__name__}: {name}: {error}") from None
        if parameter.default is parameter.empty:
            required.append(name)
        else:
            properties[name]["default"] = parameter.default
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}, special
