"""The page's modules that touch no element, called one by one."""

import pytest

from page_support import opened


@pytest.fixture(scope="module")
def page(browser, server_url):
    with opened(browser, server_url) as opened_page:
        yield opened_page.page


def call(page, module, body, argument=None):
    """Runs `body`, in which `m` is the module and `x` the argument."""
    return page.evaluate(
        f"async (x) => {{ const m = await import('/modules/{module}.js'); {body} }}", argument)


PARSE = "const p = new m.EventParser(); return x.flatMap((part) => p.feed(part));"

EVENTS = [
    ("data: a\n\n", [{"name": "", "data": "a"}]),
    ("data:a\r\n\r\ndata: b\r\r", [{"name": "", "data": "a"}, {"name": "", "data": "b"}]),
    ("event: x\ndata: 1\ndata: 2\n\n", [{"name": "x", "data": "1\n2"}]),
    (": keep-alive\n\ndata: a\n\n", [{"comment": "keep-alive"}, {"name": "", "data": "a"}]),
    ("\ufeffdata: a\n\n", [{"name": "", "data": "a"}]),
    ("data\n\nid: 3\nretry: 5\n\n", [{"name": "", "data": ""}]),
    ("data:  two spaces: kept\n\n", [{"name": "", "data": " two spaces: kept"}]),
    ("data: no end", []),
]


@pytest.mark.parametrize("text, expected", EVENTS)
def test_events_do_not_depend_on_the_cut(page, text, expected):
    # A \r at the very end waits for what may follow.
    tail = "\n" if text.endswith("\r") else ""
    for size in (1, 2, 3, 1000):
        parts = [text[at:at + size] for at in range(0, len(text), size)] + [tail]
        assert call(page, "events", PARSE, parts) == expected


def test_a_conversation_keeps_every_version(page):
    result = call(page, "conversation", """
        const c = m.newConversation();
        const q = m.append(c, null, {role: 'user', content: 'one'});
        const a = m.append(c, q.id, {role: 'assistant', content: 'first'});
        m.append(c, a.id, {role: 'user', content: 'two'});
        const b = m.append(c, q.id, {role: 'assistant', content: 'second'});
        b.time = a.time + 1;
        const texts = () => m.pathOf(c).map((node) => node.content);
        const shown = [texts()];
        m.showVersion(c, a.id);
        shown.push(texts());
        return {shown, versions: m.versionsOf(c, a).map((node) => node.content), title: c.title};
    """)
    assert result["shown"] == [["one", "second"], ["one", "first", "two"]]
    assert result["versions"] == ["first", "second"]
    assert result["title"] == "one"


def test_a_request_carries_thoughts_calls_and_results(page):
    messages = call(page, "conversation", """
        const c = m.newConversation();
        let at = m.append(c, null, {role: 'user', content: 'weather?'});
        at = m.append(c, at.id, {role: 'assistant', content: '', reasoning: 'look',
                                 toolCalls: [{id: 'c0', name: 'w', arguments: '{"a": 1}'}]});
        at = m.append(c, at.id, {role: 'tool', toolCallId: 'c0', content: 'sun'});
        at = m.append(c, at.id, {role: 'assistant', content: 'It is'});
        return m.requestMessages(m.pathOf(c), 'be brief', true);
    """)
    assert messages == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "content": "", "reasoning_content": "look", "tool_calls": [
            {"id": "c0", "type": "function", "function": {"name": "w", "arguments": '{"a": 1}'}}]},
        {"role": "tool", "tool_call_id": "c0", "content": "sun"},
        {"role": "assistant", "content": "It is", "prefix": True},
    ]


def node(**fields):
    return {"id": "a", "parent": None, "role": "user", "content": "x", **fields}


DAMAGED = [
    None, 5, [], {}, {"title": "t"}, {"title": 1, "nodes": {}},
    {"title": "t", "nodes": {"a": node(parent="missing")}},
    {"title": "t", "nodes": {"a": node(parent="a")}},
    {"title": "t", "nodes": {"a": node(parent="constructor")}},
    {"title": "t", "nodes": {"a": node(role="system")}},
    {"title": "t", "nodes": {"a": node(content=7)}},
    {"title": "t", "nodes": {"a": node(parent="b"), "b": node(id="b", parent="a")}},
]


@pytest.mark.parametrize("raw", DAMAGED)
def test_a_damaged_conversation_is_refused(page, raw):
    assert call(page, "conversation", "return m.readConversation(x);", raw) is None


def test_an_export_comes_back_whole(page):
    result = call(page, "transfer", """
        const {append, newConversation} = await import('/modules/conversation.js');
        const c = newConversation();
        c.settings.temperature = 0.5;
        const q = append(c, null, {role: 'user', content: 'one'});
        append(c, q.id, {role: 'assistant', content: 'two', reasoning: 'r', finish: 'stop',
                         model: 'nano', toolCalls: [], stats: {seconds: 1.5}});
        const text = m.exportText([c, {title: 'broken'}]);
        const back = m.importText(text, new Set());
        const again = m.importText(text, new Set([c.id]));
        return {same: JSON.stringify(back.conversations[0]) === JSON.stringify(c), c,
                back: back.conversations[0], refused: back.refused,
                otherId: again.conversations[0].id !== c.id};
    """)
    assert result["back"] == result["c"]
    assert result["refused"] == 1
    assert result["otherId"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "other", "conversations": []}'])
def test_a_foreign_file_is_refused_in_words(page, text):
    words = call(page, "transfer", """
        try { m.importText(x, new Set()); return ''; } catch (error) { return error.message; }
    """, text)
    assert words.startswith("The file")


NUMBERS = [
    ("temperature", "", {"value": None}), ("temperature", " 0.7 ", {"value": 0.7}),
    ("temperature", "2.1", "error"), ("temperature", "-1", "error"), ("temperature", "warm", "error"),
    ("top_p", "1", {"value": 1}), ("top_p", "1.01", "error"), ("max_tokens", "0", "error"),
    ("max_tokens", "1.5", "error"), ("seed", "1e400", "error"), ("seed", "42", {"value": 42}),
]


@pytest.mark.parametrize("name, text, expected", NUMBERS)
def test_numbers_are_read_or_refused(page, name, text, expected):
    result = call(page, "settings", "return m.readNumber(x[0], x[1]);", [name, text])
    assert ("error" in result) if expected == "error" else result == expected


TOOLS = [
    ("", {"tools": []}),
    ('{"name": "f"}', {"tools": [{"type": "function", "function": {"name": "f"}}]}),
    ('[{"type": "function", "function": {"name": "f"}}]',
     {"tools": [{"type": "function", "function": {"name": "f"}}]}),
    ("[", "Not JSON"), ("[1]", "no function name"), ('[{"name": "f"}, {"name": "f"}]', "Two tools"),
    ("[null]", "no function name"),
]


@pytest.mark.parametrize("text, expected", TOOLS)
def test_tools_are_read_or_refused(page, text, expected):
    result = call(page, "settings", "return m.readTools(x);", text)
    if isinstance(expected, str):
        assert expected in result["error"]
    else:
        assert result == expected


def test_a_request_says_only_what_the_user_set(page):
    body = call(page, "settings", """
        return m.requestBody({...m.defaultSettings(), ...x}, 'nano', []);
    """, {"effort": 33, "seed": 7})
    assert body["thinking"] == {"type": "enabled"} and body["reasoning_effort"] == 33
    assert body["seed"] == 7 and "temperature" not in body and "tools" not in body
    body = call(page, "settings", """
        return m.requestBody({...m.defaultSettings(), ...x}, 'nano', []);
    """, {"thinking": False})
    assert body["thinking"] == {"type": "disabled"} and "reasoning_effort" not in body


def test_an_answer_adds_up(page):
    result = call(page, "answer", """
        const node = {content: ''};
        const answer = new m.Answer(node, 0);
        const delta = (fields) => ({choices: [{index: 0, delta: fields}]});
        const call = (fields) => delta({tool_calls: [{index: 0, ...fields}]});
        answer.apply({choices: [], prompt_progress: {total: 10, processed: 4, cache: 2}}, 100);
        const progress = answer.progress;
        answer.apply(delta({reasoning_content: 'hm'}), 1000);
        answer.apply(delta({content: 'so'}), 3500);
        answer.apply(call({id: 'c7', function: {name: 'f', arguments: '{"a"'}}), 4000);
        answer.apply(call({function: {arguments: ': 1}'}}), 4500);
        answer.apply({choices: [{index: 0, delta: {}, finish_reason: 'tool_calls'}]}, 4600);
        answer.apply({choices: [], usage: {prompt_tokens: 10, completion_tokens: 9,
          prompt_cache_hit_tokens: 2, completion_tokens_details: {reasoning_tokens: 3}},
          timings: {predicted_per_second: 12.5, prompt_ms: 250}}, 4700);
        answer.end(5000, 'stop');
        return {progress, node};
    """)
    node_out = result["node"]
    assert result["progress"] == {"done": 4, "total": 10, "cached": 2}
    assert (node_out["reasoning"], node_out["content"], node_out["finish"]) == ("hm", "so", "tool_calls")
    assert node_out["toolCalls"] == [{"id": "c7", "name": "f", "arguments": '{"a": 1}'}]
    assert node_out["stats"] == {
        "completionTokens": 9, "promptTokens": 10, "cachedTokens": 2, "reasoningTokens": 3,
        "tokensPerSecond": 12.5, "promptSeconds": 0.25, "reasoningSeconds": 2.5, "seconds": 5}


def test_a_call_that_was_cut_short_is_dropped(page):
    calls = call(page, "answer", """
        const node = {content: ''};
        const answer = new m.Answer(node, 0);
        const calls = [{index: 0, id: 'a', function: {name: 'f', arguments: '{}'}},
                       {index: 1, id: 'b', function: {name: 'g', arguments: '{"x": '}}];
        answer.apply({choices: [{index: 0, delta: {tool_calls: calls}}]}, 1);
        answer.end(2, 'stopped');
        return node.toolCalls.map((one) => one.id);
    """)
    assert calls == ["a"]


def test_tokens_are_estimated_until_the_server_counts_them(page):
    stats = call(page, "answer", """
        const node = {content: ''};
        const answer = new m.Answer(node, 0);
        const chunk = (more) => ({choices: [{index: 0, delta: {content: 'x'}}], ...more});
        const seen = [];
        for (let at = 0; at <= 4; ++at) {
          answer.apply(chunk(at < 4 ? {} : {usage: {completion_tokens: 9}}), 1000 + 500 * at);
          seen.push({...node.stats});
        }
        answer.apply(chunk({usage: {completion_tokens: 11}}), 3500);
        return [...seen, node.stats];
    """)
    assert stats[3] == {"completionTokens": 4, "estimated": 1, "tokensPerSecond": 2}
    assert stats[4]["completionTokens"] == 9 and "estimated" not in stats[4]
    assert stats[5] == {"completionTokens": 11, "tokensPerSecond": 3.2}
