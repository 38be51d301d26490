"""GitHub's published description of its API (npm ``@octokit/openapi``), to hold calls against."""

from __future__ import annotations

import copy
import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from jsonschema import Draft202012Validator, validators
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from .server import Answer, Call

FILE = Path(__file__).parents[1] / "node_modules/@octokit/openapi/generated/api.github.com.json"

URI = "urn:github"

BASIC = {"$ref": "#/components/schemas/basic-error"}


@functools.cache
def description() -> Any:
    assert FILE.exists(), f"{FILE} is missing: run make setup"
    return json.loads(FILE.read_bytes())


def example(name: str) -> Any:
    """Return a published example of an answer, to be changed at will."""
    return copy.deepcopy(description()["components"]["examples"][name]["value"])


def _unless_null(keyword: str) -> Any:
    """OpenAPI 3.0 says ``nullable`` where JSON Schema lists null among the types."""
    check = Draft202012Validator.VALIDATORS[keyword]

    def checked(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        if not (instance is None and schema.get("nullable")):
            yield from check(validator, value, instance, schema) or ()

    return checked


_Validator = validators.extend(
    Draft202012Validator,
    {word: _unless_null(word) for word in ("type", "enum", "anyOf", "oneOf", "allOf")},
)


@functools.cache
def _registry() -> Any:
    return Registry().with_resource(URI, DRAFT202012.create_resource(description()))


def _faults(schema: Any, value: Any, where: str) -> list[str]:
    schema = json.loads(json.dumps(schema).replace('"#/', f'"{URI}#/'))
    found = _Validator(schema, registry=_registry()).iter_errors(value)
    return [f"{where}: {'/'.join(map(str, e.path))}: {e.message[:200]}" for e in found]


def _resolved(thing: Any) -> Any:
    while "$ref" in thing:
        at = description()
        for part in thing["$ref"].removeprefix("#/").split("/"):
            at = at[part]
        thing = at
    return thing


@functools.cache
def _templates() -> list[tuple[re.Pattern[str], str]]:
    """The paths below one repository; ``ref`` may have slashes in it."""
    found = []
    for path in description()["paths"]:
        if path.startswith("/repos/{owner}/{repo}"):
            pattern = re.sub(r"\{ref\}|\{tag\}", ".+", path)
            found.append((re.compile(re.sub(r"\{[^}]+\}", "[^/]+", pattern)), path))
    return sorted(found, key=lambda entry: (entry[1].count("{"), -len(entry[1])))


def violations(call: Call, answer: Answer) -> list[str]:
    """Return where a call or its answer is not as GitHub describes it."""
    path = unquote(call.path)
    where = f"{call.method} {path}"
    operation = None
    for pattern, template in _templates():
        operation = description()["paths"][template].get(call.method.lower())
        if pattern.fullmatch(path) and operation is not None:
            break
    else:
        return [f"{where}: there is no such operation"]
    return _request_faults(call, operation, where) + _answer_faults(answer, operation, where)


def _request_faults(call: Call, operation: Any, where: str) -> list[str]:
    faults = []
    parameters = {p["name"]: p for p in map(_resolved, operation["parameters"])}
    for name, text in call.query.items():
        parameter = parameters.get(name)
        if parameter is None or parameter["in"] != "query":
            faults.append(f"{where}: there is no parameter {name}")
            continue
        value: Any = int(text) if parameter["schema"].get("type") == "integer" else text
        faults += _faults(parameter["schema"], value, f"{where} ?{name}")
    body = operation.get("requestBody")
    if body is None:
        return faults + ([f"{where}: takes no body"] if call.body is not None else [])
    if call.body is None:
        return faults + ([f"{where}: needs a body"] if body.get("required") else [])
    schema = _resolved(body["content"]["application/json"]["schema"])
    unknown = set(call.body) - set(schema["properties"])
    faults += [f"{where}: the body has no {name}" for name in unknown]
    return faults + _faults(schema, call.body, f"{where} body")


def _answer_faults(answer: Answer, operation: Any, where: str) -> list[str]:
    where = f"{where} -> {answer.status}"
    described = operation["responses"].get(str(answer.status))
    if described is None:
        if answer.status in {301, 307, 403, 404}:  # described in general, for all operations
            return _faults(BASIC, answer.body, where)
        return [f"{where}: no such answer"]
    content = _resolved(described).get("content", {}).get("application/json")
    if content is None:
        return [] if answer.body is None else [f"{where}: has no body"]
    return _faults(content["schema"], answer.body, where)
