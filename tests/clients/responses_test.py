"""The official openai package's client.responses against the server."""

import json

import openai
import pytest
from pydantic import BaseModel

WEATHER = {"type": "function", "name": "get_weather", "description": "Get the weather",
           "parameters": {"type": "object", "properties": {"city": {"type": "string"}},
                          "required": ["city"]}}
SUNNY = '{"temp": 21, "sky": "sunny"}'
THINKING = "The user asks who I am. I say it."
ANSWER = "I am Nano, a tiny demo model with the DeepSeek-V4.1 architecture."


@pytest.fixture(scope="module")
def client(server_url):
    return openai.OpenAI(base_url=server_url + "/v1", api_key="none", max_retries=0, timeout=60)


def create(client, question, **fields):
    return client.responses.create(model="nano", input=question, temperature=0, **fields)


def comparable(response):
    """A response without what differs from one to the next."""
    dump = response.model_dump(exclude={"id", "created_at", "usage"})
    for item in dump["output"]:
        item.pop("id")
        item.pop("call_id", None)
    return dump


def test_response(client):
    reply = create(client, "Who are you?", metadata={"a": "b"})
    assert [item.type for item in reply.output] == ["reasoning", "message"]
    assert reply.output[0].content[0].text == THINKING
    assert reply.output_text == ANSWER
    assert reply.status == "completed"
    assert reply.metadata == {"a": "b"}
    assert reply.usage.input_tokens == 36
    assert reply.usage.output_tokens_details.reasoning_tokens == 12
    assert reply.usage.total_tokens == 36 + reply.usage.output_tokens


def test_instructions_and_effort(client):
    reply = create(client, "Who are you?", instructions="You are a helpful assistant.",
                   reasoning={"effort": "none"})
    assert [item.type for item in reply.output] == ["message"]
    assert reply.output_text == ANSWER


def test_stream_equals_the_response(client):
    with client.responses.stream(model="nano", input="Who are you?", temperature=0) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type for event in events[:3]] == [
        "response.created", "response.in_progress", "response.output_item.added"]
    assert events[-1].type == "response.completed"
    assert "".join(event.delta for event in events
                   if event.type == "response.output_text.delta") == ANSWER
    assert "".join(event.delta for event in events
                   if event.type == "response.reasoning_text.delta") == THINKING
    final, whole = comparable(final), comparable(create(client, "Who are you?"))
    for item in final["output"]:
        for part in item.get("content") or []:
            part.pop("parsed", None)
    assert final == whole


def test_tools_round_trip(client):
    items = [{"role": "user", "content": "What is the weather in Paris?"}]
    first = create(client, items, tools=[WEATHER])
    call = first.output[-1]
    assert (call.type, call.name) == ("function_call", "get_weather")
    assert json.loads(call.arguments) == {"city": "Paris"}
    items += first.output
    items.append({"type": "function_call_output", "call_id": call.call_id,
                  "output": SUNNY})
    second = create(client, items, tools=[WEATHER])
    assert second.output_text == "It is sunny in Paris with 21 degrees."
    assert second.usage.input_tokens_details.cached_tokens > first.usage.input_tokens


def test_streamed_and_required_tools(client):
    with client.responses.stream(model="nano", input="What is the weather in Rome?", temperature=0,
                                 tools=[WEATHER]) as stream:
        arguments = "".join(event.delta for event in stream
                            if event.type == "response.function_call_arguments.delta")
    assert json.loads(arguments) == {"city": "Rome"}
    required = create(client, "Hello!", tools=[WEATHER], tool_choice="required",
                      reasoning={"effort": "none"})
    assert "city" in json.loads(required.output[-1].arguments)


def test_custom_tool(client):
    tool = {"type": "custom", "name": "note", "description": "Writes a note."}
    reply = create(client, "Hello!", tools=[tool], tool_choice={"type": "custom", "name": "note"},
                   reasoning={"effort": "none"}, max_output_tokens=300)
    call = reply.output[-1]
    assert (call.type, call.name) == ("custom_tool_call", "note")
    again = create(client, [{"role": "user", "content": "Hello!"}, *reply.output,
                            {"type": "custom_tool_call_output", "call_id": call.call_id,
                             "output": "done"}], tools=[tool], max_output_tokens=300)
    assert again.output


def test_structured_output(client):
    class Person(BaseModel):
        name: str
        age: int

    reply = client.responses.parse(model="nano", input="Hello!", temperature=0, text_format=Person,
                                   max_output_tokens=400)
    assert isinstance(reply.output_parsed, Person)
    anything = create(client, "Hello!", text={"format": {"type": "json_object"}},
                      max_output_tokens=400)
    assert isinstance(json.loads(anything.output_text), dict)


def test_length(client):
    reply = create(client, "Who are you?", max_output_tokens=16, reasoning={"effort": "none"})
    assert reply.status == "incomplete"
    assert reply.incomplete_details.reason == "max_output_tokens"
    assert reply.usage.output_tokens == 16


def test_log_probabilities(client):
    reply = create(client, "Who are you?", include=["message.output_text.logprobs"],
                   top_logprobs=2, reasoning={"effort": "none"})
    tokens = reply.output[-1].content[0].logprobs
    assert "".join(token.token for token in tokens) == ANSWER
    assert all(len(token.top_logprobs) == 2 for token in tokens)


def test_input_tokens(client):
    count = client.responses.input_tokens.count(model="nano", input="Who are you?")
    assert count.input_tokens == 36


def test_errors_become_exceptions(client):
    with pytest.raises(openai.BadRequestError) as refused:
        create(client, [{"role": "robot", "content": "x"}])
    assert refused.value.param == "input[0].role"
    with pytest.raises(openai.BadRequestError) as stored:
        create(client, "Hello!", previous_response_id="resp_1")
    assert stored.value.param == "previous_response_id"
    with pytest.raises(openai.BadRequestError) as long:
        create(client, "word " * 9000)
    assert long.value.code == "context_length_exceeded"
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="other", input="Hello!")
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve("resp_1")
