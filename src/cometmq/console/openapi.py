"""The description of /api in OpenAPI 3.1, written from the table of routes: `static/openapi.json` is this, saved.

python -m cometmq.console.openapi            write it
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from cometmq.console.routes import Route

FILE: Final = Path(__file__).parent / "static" / "openapi.json"
ERRORS: Final = {
    "400": "an argument is wrong",
    "401": "log in first",
    "403": "not allowed",
    "404": "not there",
    "422": "a broker refused",
    "502": "a server of the cluster does not answer",
}


def document(routes: "Iterable[Route]") -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "CometMQ console",
            "version": "1",
            "description": "Everything that the console's pages do. Changes are a plan, then its application.",
        },
        "paths": paths,
    }


def _operation(route: "Route") -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", route.path)
    ]
    parameters += [
        {"name": name, "in": "query", "required": False, "schema": {"type": "string"}} for name in route.query
    ]
    if route.changes:
        header = {"name": "X-CometMQ-Console", "in": "header", "required": True, "schema": {"const": "1"}}
        parameters.append(header)
    kind = "text/event-stream" if route.stream else "application/json"
    errors = {code: {"description": text} for code, text in ERRORS.items()}
    if route.path.endswith("/apply"):
        errors["409"] = {"description": "what the plan saw has changed meanwhile"}
    operation: dict[str, Any] = {
        "summary": route.summary,
        "operationId": route.handler.__name__,
        "x-needs": route.needs.name.lower(),
        "parameters": parameters,
        "responses": {"200": {"description": route.summary, "content": {kind: {}}}, **errors},
    }
    if route.method == "POST":
        operation["requestBody"] = {"content": {"application/json": {"schema": {"type": "object"}}}}
    return operation


def text() -> str:
    from cometmq.console.routes import ROUTES

    return json.dumps(document(ROUTES), indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
