"""The API described: the OpenAPI document, and the same for people."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from flask import Response, render_template

from app.api.openapi import build_document
from app.api.routes import Declared
from app.errors import AppError
from app.extensions import extensions
from app.problems import HTTP_CODES, PREFIX


class Docs:
    """Both faces of the description of `declared` routes."""

    def __init__(self, declared: Sequence[Declared]) -> None:
        self._declared = declared

    @cached_property
    def document(self) -> dict[str, Any]:
        return build_document(self._declared, server_url=extensions().config.base_url)

    def openapi(self) -> Response:
        return Response(json.dumps(self.document), mimetype="application/json")

    def page(self) -> str:
        """Every operation with its parameters and fields; no script, no foreign asset."""
        document = self.document
        schemas = document["components"]["schemas"]
        groups: dict[str, list[dict[str, Any]]] = {}
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                [tag] = operation["tags"]
                groups.setdefault(tag, []).append(
                    {
                        "id": operation["operationId"],
                        "method": method.upper(),
                        "path": f"{PREFIX}{path}",
                        "summary": operation["summary"],
                        "scope": operation["description"],
                        "parameters": [
                            item for item in operation["parameters"] if item["in"] == "query"
                        ],
                        "body": _body(operation),
                        "answer": _answer(operation),
                    }
                )
        return render_template(
            "api_docs/index.html",
            base_url=document["servers"][0]["url"],
            groups=groups,
            schemas={name: _fields(schema) for name, schema in schemas.items()},
            about={name: schema.get("description", "") for name, schema in schemas.items()},
            errors=sorted(
                set(_error_codes(AppError)) | {(s, c, "") for s, c in HTTP_CODES.items()}
            ),
        )


def _body(operation: dict[str, Any]) -> str | None:
    content = operation.get("requestBody", {}).get("content", {})
    if "multipart/form-data" in content:
        return "a form with the part “file”"
    return _name(content.get("application/json", {}).get("schema", {}))


def _answer(operation: dict[str, Any]) -> str | None:
    done = next(value for key, value in operation["responses"].items() if key.startswith("2"))
    return _name(done.get("content", {}).get("application/json", {}).get("schema", {}))


def _fields(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Name, type and what is said of every field; for an enum its words."""
    required = schema.get("required", ())
    if "enum" in schema:
        return [{"name": word, "type": "", "is_required": False, "text": ""}
                for word in schema["enum"]]  # fmt: skip
    return [
        {
            "name": name,
            "type": type_words(value),
            "is_required": name in required,
            "text": value.get("description", ""),
        }
        for name, value in schema.get("properties", {}).items()
    ]


def type_words(schema: dict[str, Any]) -> str:
    """A schema's type in a few words."""
    if options := schema.get("anyOf"):
        return " or ".join(type_words(option) for option in options)
    if name := _name(schema):
        return name
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {type_words(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"map of {type_words(schema['additionalProperties'])}"
    return str(schema.get("format", kind))


def _name(schema: dict[str, Any]) -> str | None:
    reference: str | None = schema.get("$ref")
    return reference.rpartition("/")[2] if reference else None


def _error_codes(kind: type[AppError]) -> Iterator[tuple[int, str, str]]:
    for child in kind.__subclasses__():
        text = (child.__doc__ or "").partition("\n")[0]
        yield child.status, child.code, text
        yield from _error_codes(child)
