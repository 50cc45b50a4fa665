"""The OpenAPI document that the server hands out: valid, and about the fields that the server reads."""
import json
import pathlib
import re

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

ROOT = pathlib.Path(__file__).resolve().parents[2]
SERVER = ROOT / "src" / "server"
DOCUMENT = json.loads((SERVER / "web" / "openapi.json").read_text())
SCHEMAS = DOCUMENT["components"]["schemas"]
VERSION = re.search(r"project\(kipp VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
# Read, so that the refusal can say what to use instead.
REFUSED = {"functions", "function_call", "reasoning_effort"}


def resolved(schema):
    while "$ref" in schema:
        target = DOCUMENT
        for part in schema["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        schema = target
    return schema


def schemas_of(schema):
    """The schema and all that are written inside of it."""
    if isinstance(schema, dict):
        yield schema
    for value in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else []:
        yield from schemas_of(value)


def properties(name):
    return set(SCHEMAS[name]["properties"])


def function(source, name):
    """The text of a function of a C++ source, up to the brace that closes it."""
    return re.search(rf"^[^\n]*\b{name}\([^;]*?\{{\n.*?^\}}$", source, re.S | re.M)[0]


def fields_read(*functions):
    """The fields of the body, by their names in the sources of these functions."""
    sources = "\n".join(path.read_text() for path in sorted(SERVER.glob("*request*.cc")))
    names = set()
    for name in functions:
        text = function(sources, name)
        names |= set(re.findall(r"fields\.(?:value|list|string|boolean|integer|number|object|flag|refuse)\(\s*\"(\w+)\"", text))
        names |= set(re.findall(r"read_max_tokens\(fields, \"(\w+)\"", text))
        names |= set(re.findall(r"\bcheck\(\"(\w+)\", !?continues\)", text))
    return names


COMMON = ["read_model", "read_common", "read_stream", "read_sampling", "read_seed", "read_logit_bias", "read_stops"]
PROMPT = ["read_messages", "read_chat_input", "read_tools", "read_tool_choice", "read_continuation"]


def test_the_document_is_valid_and_of_this_version():
    OpenAPIV31SpecValidator(DOCUMENT).validate()
    assert DOCUMENT["info"]["version"] == VERSION


@pytest.mark.parametrize("schema, functions", [
    ("CompletionRequest", COMMON + ["parse_completion"]),
    ("ChatRequest", COMMON + PROMPT + ["parse_chat", "read_chat_max_tokens", "read_chat_logprobs", "read_formalities"]),
    ("TemplateRequest", ["read_model", "parse_apply_template"] + PROMPT),
    ("TokenizeRequest", ["read_model", "tokenize"]),
    ("DetokenizeRequest", ["read_model", "detokenize"]),
])
def test_the_fields_are_those_that_are_read(schema, functions):
    assert properties(schema) == fields_read(*functions) - REFUSED


def test_paths_are_those_that_are_answered():
    routes = re.findall(r'\{"(/[^"]*)", "(GET|POST)", &Service::(\w+)', (SERVER / "service.cc").read_text())
    api = {(path, method.lower()) for path, method, handler in routes if handler != "asset"}
    api |= {("/openapi.json", "get"), ("/v1/models/{model}", "get")}
    assert api == {(path, method) for path, item in DOCUMENT["paths"].items() for method in item if method != "parameters"}


def test_requests_refuse_fields_that_are_not_named():
    for operation in (item["post"] for item in DOCUMENT["paths"].values() if "post" in item):
        body = resolved(operation["requestBody"]["content"]["application/json"]["schema"])
        # Null is the same as absent.
        assert body["additionalProperties"] == {"type": "null"}
        for schema in schemas_of(body):
            if "properties" in schema and "type" in schema and "object" in schema["type"]:
                assert "additionalProperties" in schema, schema
        assert {"400", "401", "413", "503"} <= set(operation["responses"])
    for path in ["/v1/completions", "/v1/chat/completions"]:
        assert "Retry-After" in resolved(DOCUMENT["paths"][path]["post"]["responses"]["429"])["headers"]


def test_limits_are_those_of_the_code():
    headers = "\n".join(path.read_text() for folder in ["server", "engine", "model"]
                        for path in sorted((ROOT / "src" / folder).glob("*.h")))

    def constant(name):
        return int(re.search(rf"\b{name} = (\d+);", headers)[1])

    completion, chat = SCHEMAS["CompletionRequest"]["properties"], SCHEMAS["ChatRequest"]["properties"]
    assert completion["n"]["maximum"] == completion["best_of"]["maximum"] == constant("kMaxChoices")
    assert completion["prompt"]["anyOf"][2]["maxItems"] == constant("kMaxPrompts")
    assert completion["logprobs"]["maximum"] == constant("kMaxTopLogprobsText")
    assert chat["top_logprobs"]["maximum"] == constant("kMaxTopLogprobs")
    assert completion["stop"]["anyOf"][2]["maxItems"] == constant("kMaxStopStrings")
    assert completion["logit_bias"]["maxProperties"] == constant("kMaxLogitBiases")
    assert completion["stop"]["anyOf"][1]["maxLength"] * 4 <= constant("kMaxStopBytes")
    assert completion["user"]["maxLength"] * 4 <= constant("kMaxUserBytes")
    tokens = constant("kNamedTokens")
    assert SCHEMAS["Token"]["maximum"] == tokens - 1
    allowed = re.compile(completion["logit_bias"]["propertyNames"]["pattern"])
    for id in [0, 9, 10, 99999, 100000, 149999, 150999, 151599, tokens - 1]:
        assert allowed.search(str(id)), id
    for key in [str(tokens), "151700", "152000", "200000", "-1", "00", "01", "1.0", "", "1000000"]:
        assert not allowed.search(key), key
