"""The official anthropic package against the server: what it sends is understood, what comes back is
what it expects, errors become its exceptions."""

import anthropic
import pytest
from pydantic import BaseModel

WEATHER = {"name": "get_weather", "description": "Get the weather",
           "input_schema": {"type": "object", "properties": {"city": {"type": "string"}},
                            "required": ["city"]}}
QUESTION = [{"role": "user", "content": "Who are you?"}]
SUNNY = '{"temp": 21, "sky": "sunny"}'
THINKING = "The user asks who I am. I say it."
ANSWER = "I am Nano, a tiny demo model with the DeepSeek-V4.1 architecture."
OFF = {"type": "disabled"}
GREEDY = {"temperature": 0}


@pytest.fixture(scope="module", params=["", "/anthropic"])
def client(server_url, request):
    return anthropic.Anthropic(base_url=server_url + request.param, api_key="none", max_retries=0,
                               timeout=60)


def create(client, messages, **fields):
    fields = {"model": "nano", "max_tokens": 400, "extra_body": GREEDY} | fields
    return client.messages.create(messages=messages, **fields)


def test_message(client):
    reply = create(client, QUESTION)
    assert [block.type for block in reply.content] == ["thinking", "text"]
    assert reply.content[0].thinking == THINKING
    assert reply.content[0].signature
    assert reply.content[1].text == ANSWER
    assert reply.stop_reason == "end_turn"
    assert reply.usage.input_tokens + reply.usage.cache_read_input_tokens == 36
    assert reply.usage.output_tokens_details.thinking_tokens == 12


def test_without_thinking(client):
    reply = create(client, QUESTION, thinking=OFF, system="You are a helpful assistant.")
    assert [block.type for block in reply.content] == ["text"]
    assert reply.content[0].text == ANSWER


def test_stream_equals_the_message(client):
    with client.messages.stream(model="nano", max_tokens=400, messages=QUESTION,
                                extra_body=GREEDY) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == ANSWER
    whole = create(client, QUESTION)
    assert final.model_dump(exclude={"id", "content", "usage"}) == whole.model_dump(
        exclude={"id", "content", "usage"})
    assert [(block.type, getattr(block, "text", getattr(block, "thinking", None)))
            for block in final.content] == [("thinking", THINKING), ("text", ANSWER)]
    assert final.usage.output_tokens == whole.usage.output_tokens


def test_tools_round_trip_with_thinking(client):
    messages = [{"role": "user", "content": "What is the weather in Paris?"}]
    first = create(client, messages, tools=[WEATHER])
    assert first.stop_reason == "tool_use"
    call = first.content[-1]
    assert (call.type, call.name, call.input) == ("tool_use", "get_weather", {"city": "Paris"})
    messages += [{"role": "assistant", "content": first.content},
                 {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id,
                                               "content": SUNNY}]}]
    second = create(client, messages, tools=[WEATHER])
    assert second.content[-1].text == "It is sunny in Paris with 21 degrees."
    # What the model wrote was passed back as it was, and is not computed again.
    assert second.usage.cache_read_input_tokens > first.usage.input_tokens


def test_streamed_tools(client):
    with client.messages.stream(
            model="nano", max_tokens=400, tools=[WEATHER], extra_body=GREEDY,
            messages=[{"role": "user", "content": "What is the weather in Rome?"}]) as stream:
        final = stream.get_final_message()
    assert final.content[-1].input == {"city": "Rome"}
    assert final.stop_reason == "tool_use"


def test_chosen_tool(client):
    for choice in ({"type": "any"}, {"type": "tool", "name": "get_weather"}):
        reply = create(client, [{"role": "user", "content": "Hello!"}], tools=[WEATHER],
                       tool_choice=choice, thinking=OFF)
        assert reply.content[-1].type == "tool_use"
        assert "city" in reply.content[-1].input
    none = create(client, [{"role": "user", "content": "What is the weather in Rome?"}],
                  tools=[WEATHER], tool_choice={"type": "none"}, thinking=OFF)
    assert [block.type for block in none.content] == ["text"]


def test_structured_output(client):
    class Person(BaseModel):
        name: str
        age: int

    reply = client.messages.parse(model="nano", max_tokens=400, output_format=Person,
                                  messages=[{"role": "user", "content": "Hello!"}],
                                  extra_body=GREEDY)
    assert isinstance(reply.parsed_output, Person)


def test_stop_sequences_and_length(client):
    stopped = create(client, QUESTION, thinking=OFF, stop_sequences=["tiny", "xyz"])
    assert stopped.content[0].text == "I am Nano, a "
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "tiny")
    cut = create(client, QUESTION, thinking=OFF, max_tokens=3)
    assert (cut.stop_reason, cut.usage.output_tokens) == ("max_tokens", 3)


def test_prefill(client):
    reply = create(client, QUESTION + [{"role": "assistant", "content": "I am Nano,"}],
                   thinking=OFF)
    assert reply.content[0].text == ANSWER.removeprefix("I am Nano,")


def test_count_tokens(client):
    count = client.messages.count_tokens(model="nano", messages=QUESTION, thinking=OFF)
    assert count.input_tokens == 9
    with_tools = client.messages.count_tokens(model="claude-sonnet-5", messages=QUESTION,
                                              tools=[WEATHER])
    assert with_tools.input_tokens > 100


def test_models(server_url):
    client = anthropic.Anthropic(base_url=server_url + "/anthropic", api_key="none")
    assert "nano" in [model.id for model in client.models.list()]


def test_errors_become_exceptions(client):
    with pytest.raises(anthropic.BadRequestError) as refused:
        create(client, [{"role": "robot", "content": "x"}])
    assert refused.value.body["error"]["type"] == "invalid_request_error"
    assert refused.value.body["error"]["message"].startswith("messages[0].role: ")
    assert refused.value.request_id == refused.value.body["request_id"]
    with pytest.raises(anthropic.BadRequestError):
        create(client, [{"role": "user", "content": "word " * 9000}])
    with pytest.raises(anthropic.BadRequestError):
        create(client, QUESTION, model="gpt-9")
    with pytest.raises(anthropic.NotFoundError):
        client.post("/v1/messages/batches", cast_to=object, body={})
    with pytest.raises(anthropic.APIStatusError) as large:
        create(client, [{"role": "user", "content": "x" * (49 << 20)}])
    assert large.value.status_code == 413
    assert large.value.body["error"]["type"] == "request_too_large"


def test_keys(start_server):
    with start_server("--api-key", "secret") as server:
        stranger = anthropic.Anthropic(base_url=server.url, api_key="wrong", max_retries=0)
        with pytest.raises(anthropic.AuthenticationError) as refused:
            create(stranger, QUESTION)
        assert refused.value.body["error"]["type"] == "authentication_error"
        for credentials in ({"api_key": "secret"}, {"auth_token": "secret"}):
            friend = anthropic.Anthropic(base_url=server.url, max_retries=0, **credentials)
            assert create(friend, QUESTION).content[-1].text == ANSWER


def test_a_full_queue(start_server):
    with start_server("--max-sequences", "1", "--max-queue", "0") as server:
        client = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
        story = [{"role": "user", "content": "Tell me a story about Tom the fox, a key and the "
                                             "forest."}]
        with client.messages.stream(model="nano", max_tokens=400, messages=story) as stream:
            next(iter(stream))
            with pytest.raises(anthropic.RateLimitError) as busy:
                create(client, QUESTION)
            assert busy.value.body["error"]["type"] == "rate_limit_error"
            assert int(busy.value.response.headers["retry-after"]) >= 1
