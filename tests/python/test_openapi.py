"""The OpenAPI document that the server hands out: valid, and about the fields that the server reads."""
import json
import pathlib
import re

import pytest
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from serving import Server

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
    assert completion["stop"]["anyOf"][1]["maxLength"] == constant("kMaxStopCharacters")
    assert completion["user"]["maxLength"] == constant("kMaxUserCharacters")
    tokens = constant("kNamedTokens")
    assert SCHEMAS["Token"]["maximum"] == tokens - 1
    allowed = re.compile(completion["logit_bias"]["propertyNames"]["pattern"])
    for id in [0, 9, 10, 99999, 100000, 149999, 150999, 151599, tokens - 1]:
        assert allowed.search(str(id)), id
    for key in [str(tokens), "151700", "152000", "200000", "-1", "00", "01", "1.0", "", "1000000"]:
        assert not allowed.search(key), key


def strict(schema):
    """The schema with its references followed and nothing allowed that it does not name."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    schema = resolved(schema)
    closed = {"additionalProperties": False} if "properties" in schema and "type" in schema else {}
    return closed | {key: strict(value) for key, value in schema.items()}


def check(schema, value):
    OAS31Validator(strict(schema)).validate(value)


@pytest.fixture(scope="module")
def server():
    with Server("--access-log", "off") as server:
        yield server


def test_answers_are_as_documented(server):
    for path, item in DOCUMENT["paths"].items():
        for method in ("get", "post"):
            if method not in item or path in ("/metrics", "/openapi.json"):
                continue
            operation = item[method]
            body = operation["requestBody"]["content"]["application/json"]["example"] if method == "post" else None
            answer = server.ask(method.upper(), path.replace("{model}", "kipp-demo"), body)
            assert answer.status == 200, answer.body
            check(operation["responses"]["200"]["content"]["application/json"]["schema"], answer.json)


SAYS = {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}, "return_progress": True,
        "n": 2, "max_tokens": 4, "seed": 3}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
TALK = [{"role": "system", "content": [{"type": "text", "text": "Be brief."}]}, {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": {
            "name": "weather", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "1", "content": "sun"}]


@pytest.mark.parametrize("path, request_schema, chunk_schema, body", [
    ("/v1/completions", "CompletionRequest", "CompletionChunk",
     {**SAYS, "prompt": [[9707, 0], [9707]], "echo": True, "logprobs": 2, "stop": ["zebra"]}),
    ("/v1/chat/completions", "ChatRequest", "ChatCompletionChunk",
     {**SAYS, "messages": TALK, "tools": [TOOL], "logprobs": True, "top_logprobs": 1}),
])
def test_streams_are_as_documented(server, path, request_schema, chunk_schema, body):
    check({"$ref": f"#/components/schemas/{request_schema}"}, body)
    chunks = server.stream(path, body)
    assert any("prompt_progress" in chunk for chunk in chunks) and any("timings" in chunk for chunk in chunks)
    for chunk in chunks:
        check(SCHEMAS[chunk_schema], chunk)


# What a field may be set to beside everything else being absent, where its schema's first guess is not that.
EXAMPLES = {"stream_options": {}, "logit_bias": {"1": 2}, "prompt": "Hi", "messages": TALK, "model": "kipp-demo", "stop": "x",
            "tools": [TOOL], "chat_template_kwargs": {}, "response_format": {"type": "text"}, "tokens": [9707],
            "continue_final_message": False, "return_progress": False, "max_tokens": 1, "max_completion_tokens": 1,
            "suffix": "", "top_p": 1, "repetition_penalty": 1, "content": "x", "user": "me", "cache_salt": "s"}


def example(name, schema):
    if name in EXAMPLES:
        return EXAMPLES[name]
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema["type"] if isinstance(schema["type"], str) else schema["type"][0]
    return {"boolean": True, "integer": max(schema.get("minimum", 0), 0), "number": 0.5, "string": "x", "array": []}[kind]


@pytest.mark.parametrize("path", [path for path, item in DOCUMENT["paths"].items() if "post" in item])
def test_every_documented_field_is_taken_alone_and_no_other(server, path):
    content = DOCUMENT["paths"][path]["post"]["requestBody"]["content"]["application/json"]
    schema = resolved(content["schema"])
    least = {"max_tokens": 1} if "max_tokens" in schema["properties"] else {}
    for name in schema.get("required", ["content"]):
        least[name] = content["example"][name]
    for name, about in schema["properties"].items():
        body = {**least, name: example(name, resolved(about))}
        if name == "max_completion_tokens":
            del body["max_tokens"]
        if path == "/tokenize" and name == "prompt":
            del body["content"]
        if name == "stream_options":
            body["stream"] = True
        if name == "top_logprobs":
            body["logprobs"] = True
        check(schema, body)
        answer = server.post(path, body)
        assert answer.status == 200, (body, answer.body)
        assert server.post(path, {**least, name: None}).status == (400 if name in least and name != "max_tokens" else 200)
    answer = server.post(path, {**least, "surprise": 1})
    assert (answer.status, answer.error["param"]) == (400, "surprise")
