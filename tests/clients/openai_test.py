"""The official openai package against the server: what it sends is understood, what comes back is
what it expects, errors become its exceptions."""

import json
from typing import Annotated, Literal

import openai
import pytest
from pydantic import BaseModel, Field

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Get the weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}},
                   "required": ["city"]}}}
QUESTION = [{"role": "user", "content": "Who are you?"}]
ANSWER = "I am Nano, a tiny demo model with the DeepSeek-V4.1 architecture."


@pytest.fixture(scope="module")
def client(server_url):
    return openai.OpenAI(base_url=server_url + "/v1", api_key="none", max_retries=0, timeout=600)


def chat(client, messages, **fields):
    return client.chat.completions.create(model="nano", messages=messages, temperature=0, **fields)


def test_chat(client):
    reply = chat(client, QUESTION)
    assert reply.choices[0].message.content == ANSWER
    assert reply.choices[0].message.reasoning_content == "The user asks who I am. I say it."
    assert reply.choices[0].finish_reason == "stop"
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens
    assert reply.usage.completion_tokens_details.reasoning_tokens == 12


def test_stream(client):
    content = reasoning = ""
    usage = None
    for chunk in chat(client, QUESTION, stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            content += choice.delta.content or ""
            reasoning += getattr(choice.delta, "reasoning_content", None) or ""
    assert content == ANSWER
    assert reasoning == "The user asks who I am. I say it."
    assert usage.completion_tokens > 12


def test_effort_and_thinking(client):
    quick = chat(client, QUESTION, reasoning_effort="none")
    assert not getattr(quick.choices[0].message, "reasoning_content", None)
    disabled = chat(client, QUESTION, extra_body={"thinking": {"type": "disabled"}})
    assert disabled.choices[0].message.content == quick.choices[0].message.content


def test_tools_round_trip(client):
    messages = [{"role": "user", "content": "What is the weather in Paris?"}]
    first = chat(client, messages, tools=[WEATHER])
    assert first.choices[0].finish_reason == "tool_calls"
    call = first.choices[0].message.tool_calls[0]
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == {"city": "Paris"}
    messages += [first.choices[0].message,
                 {"role": "tool", "tool_call_id": call.id, "content": '{"temp": 21, "sky": "sunny"}'}]
    second = chat(client, messages, tools=[WEATHER])
    assert "sunny" in second.choices[0].message.content


def test_streamed_tools(client):
    with client.chat.completions.stream(
            model="nano", messages=[{"role": "user", "content": "What is the weather in Rome?"}],
            tools=[WEATHER], temperature=0) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert json.loads(final.choices[0].message.tool_calls[0].function.arguments) == {"city": "Rome"}


def test_required_tool(client):
    reply = chat(client, [{"role": "user", "content": "Hello!"}], tools=[WEATHER],
                 tool_choice="required")
    assert "city" in json.loads(reply.choices[0].message.tool_calls[0].function.arguments)


def test_structured_output(client):
    class Person(BaseModel):
        name: Literal["Tom", "Anna"]
        age: Annotated[int, Field(ge=0, le=120)]
        awake: bool

    reply = client.chat.completions.parse(
        model="nano", messages=[{"role": "user", "content": "Hello!"}], temperature=0,
        response_format=Person)
    assert isinstance(reply.choices[0].message.parsed, Person)


def test_json_object(client):
    reply = chat(client, [{"role": "user", "content": "Hello!"}],
                 response_format={"type": "json_object"})
    assert isinstance(json.loads(reply.choices[0].message.content), dict)


def test_several_choices_and_log_probabilities(client):
    reply = client.chat.completions.create(
        model="nano", messages=QUESTION, n=3, seed=1, temperature=1.2, logprobs=True,
        top_logprobs=2, max_tokens=30)
    assert [choice.index for choice in reply.choices] == [0, 1, 2]
    for choice in reply.choices:
        content = choice.logprobs.content
        assert "".join(token.token for token in content) == choice.message.content
        assert all(len(token.top_logprobs) == 2 for token in content)


def test_completions(client):
    reply = client.completions.create(model="nano", prompt=["The capital of France", "Hello"],
                                      max_tokens=5, temperature=0)
    assert len(reply.choices) == 2
    scored = client.completions.create(model="nano", prompt="The capital of France", max_tokens=1,
                                       temperature=0, echo=True, logprobs=1)
    assert scored.choices[0].text.startswith("The capital of France")
    assert len(scored.choices[0].logprobs.token_logprobs) == 5
    streamed = "".join(chunk.choices[0].text for chunk in client.completions.create(
        model="nano", prompt="The capital of France", max_tokens=5, temperature=0, stream=True))
    assert streamed == reply.choices[0].text


def test_models(client):
    assert [model.id for model in client.models.list()] == ["nano"]
    assert client.models.retrieve("nano").owned_by == "cachalot"


def test_errors_become_exceptions(client):
    with pytest.raises(openai.BadRequestError) as refused:
        chat(client, [{"role": "robot", "content": "x"}])
    assert refused.value.param == "messages[0].role"
    assert refused.value.code == "invalid_request_error"
    with pytest.raises(openai.BadRequestError) as too_long:
        chat(client, [{"role": "user", "content": "word " * 9000}])
    assert too_long.value.code == "context_length_exceeded"
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="other", messages=QUESTION)
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="nano", messages=QUESTION, temperature=7)


def test_keys_and_the_queue_become_exceptions(start_server):
    with start_server("--api-key", "secret", "--max-sequences", "1", "--max-queue", "0") as server:
        stranger = openai.OpenAI(base_url=server.url + "/v1", api_key="wrong", max_retries=0)
        with pytest.raises(openai.AuthenticationError):
            chat(stranger, QUESTION)
        friend = openai.OpenAI(base_url=server.url + "/v1", api_key="secret", max_retries=0)
        stream = chat(friend, QUESTION, stream=True, max_tokens=3000,
                      extra_body={"ignore_eos": True})
        next(iter(stream))
        with pytest.raises(openai.RateLimitError) as busy:
            chat(friend, QUESTION)
        assert int(busy.value.response.headers["retry-after"]) >= 1
        stream.close()
