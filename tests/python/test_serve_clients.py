"""The `openai` package as its users write it, unchanged, against `kipp serve`."""

import asyncio

import openai
import pytest

from serving import Server

ASK = [{"role": "user", "content": "Tell me a story about a boat."}]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather at a place.",
            "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
        },
    }
]


@pytest.fixture(scope="module")
def server():
    with Server("--api-key", "sk-test") as running:
        yield running
        assert running.stop() == 0


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="sk-test", max_retries=0)


def test_models(client):
    assert [model.id for model in client.models.list()] == ["kipp-demo"]


def test_chat(client):
    answer = client.chat.completions.create(model="kipp-demo", messages=ASK, max_tokens=16, temperature=0)
    assert answer.choices[0].message.role == "assistant"
    assert len(answer.choices[0].message.content.split()) > 5
    assert answer.usage.completion_tokens == 16


def test_chat_stream(client):
    whole = client.chat.completions.create(model="kipp-demo", messages=ASK, max_tokens=16, temperature=0)
    stream = client.chat.completions.create(
        model="kipp-demo", messages=ASK, max_tokens=16, temperature=0, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage == whole.usage


def test_the_stream_helper_adds_up_what_the_answer_says(client):
    ask = {"model": "kipp-demo", "messages": ASK, "stop": ["."], "temperature": 0}
    with client.chat.completions.stream(**ask) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    whole = client.chat.completions.create(**ask)
    assert final.choices[0].message.content == whole.choices[0].message.content
    assert final.choices[0].finish_reason == "stop"


def test_completion_with_logprobs(client):
    answer = client.completions.create(model="kipp-demo", prompt="Once", max_tokens=3, logprobs=2, echo=True, temperature=0)
    logprobs = answer.choices[0].logprobs
    assert answer.choices[0].text.startswith("Once")
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.top_logprobs) == 4


def test_chat_logprobs(client):
    answer = client.chat.completions.create(
        model="kipp-demo", messages=ASK, max_tokens=4, logprobs=True, top_logprobs=3, temperature=0
    )
    content = answer.choices[0].logprobs.content
    assert len(content) == 4
    for entry in content:
        assert len(entry.top_logprobs) == 3 and entry.top_logprobs[0].logprob == entry.logprob
        assert bytes(entry.bytes).decode(errors="replace") == entry.token


def test_a_conversation_with_tools_is_understood(client):
    history = [
        *ASK,
        {
            "role": "assistant",
            "content": None,  # B015
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"place": "sea"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "Calm."},
    ]
    answer = client.chat.completions.create(model="kipp-demo", messages=history, tools=TOOLS, max_tokens=8)
    assert answer.choices[0].finish_reason in ("stop", "length")


def test_errors_are_the_packages_own(client, server):
    with pytest.raises(openai.BadRequestError) as bad:
        client.chat.completions.create(model="kipp-demo", messages=ASK, temperature=-1)
    assert bad.value.param == "temperature"
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="gpt-4", messages=ASK)
    stranger = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="wrong", max_retries=0)
    with pytest.raises(openai.AuthenticationError):
        stranger.models.list()


def test_many_at_once(server):
    async def main():
        client = openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="sk-test", max_retries=0)

        async def one(i):
            stream = await client.chat.completions.create(
                model="kipp-demo", messages=ASK, max_tokens=12, temperature=1, seed=i % 4, stream=True
            )
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

        texts = await asyncio.gather(*(one(i) for i in range(16)))
        await client.close()
        return texts

    texts = asyncio.run(main())
    assert len(set(texts)) == 4 and all(texts)
