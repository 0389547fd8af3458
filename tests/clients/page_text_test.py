"""How the page shows text: markdown, formulas, code, thoughts, calls, errors; and that text stays text.

The server's answers are written here, chunk by chunk, as a model may give them."""

import json

import pytest

from page_support import chunk, content, opened


@pytest.fixture(scope="module")
def shared(browser, server_url):
    with opened(browser, server_url) as page:
        yield page


@pytest.fixture
def page(shared):
    shared.page.keyboard.press("Escape")
    shared.page.click(".sidebar .new-chat")
    return shared


def show(page, text):
    """The element of an answer with this text."""
    page.script(content(text))
    return page.ask("show").locator(".markdown")


MARKDOWN = """# Title

Some **bold**, *slanted*, ~~gone~~ and `code`, a [link](https://example.org/x).

3. three
4. four

| left | right |
| --- | ---: |
| a | 1 |

> quoted

- [x] done
- [ ] open
"""


def test_markdown_becomes_elements(page):
    shown = show(page, MARKDOWN)
    for selector in ("h1", "strong", "em", "del", "p > code", "table td", "blockquote"):
        assert shown.locator(selector).count() >= 1, selector
    assert shown.locator("ol").get_attribute("start") == "3"
    assert shown.locator("td").nth(1).get_attribute("align") == "right"
    assert shown.locator("input[type=checkbox]").count() == 2
    link = shown.locator("a")
    assert link.get_attribute("href") == "https://example.org/x"
    assert link.get_attribute("rel") == "noopener noreferrer"


FORMULAS = [  # text, formulas in the line, formulas on lines of their own, what must stay
    (r"So $a^2 + b^2 = c^2$ holds.", 1, 0, "holds"),
    (r"So \(a_1 * b_1 * c_1\) holds.", 1, 0, "holds"),
    ("Before\n\n$$\n\\int_0^1 x\\,dx\n$$\n\nafter", 0, 1, "after"),
    ("Before\n\n\\[ x \\]\n\nafter", 0, 1, "after"),
    (r"Inline \[x\] too", 0, 1, "too"),
    ("It costs $5 or $6 a piece.", 0, 0, "$5 or $6"),
    ("Set `$x$` and `\\(y\\)`.", 0, 0, "$x$"),
    ("```\n$$x$$\n```", 0, 0, "$$x$$"),
    (r"a \$x\$ b", 0, 0, "$x$"),
    ("| $x$ | b |\n| --- | --- |\n| $y_1$ | $z$ |", 3, 0, "b"),
    ("1. where $x$ is\n2. and $y$", 2, 0, "where"),
    (r"$\text{a \$ sign}$ is", 1, 0, "is"),
]


@pytest.mark.parametrize("text, inline, display, kept", FORMULAS)
def test_formulas_are_found(page, text, inline, display, kept):
    shown = show(page, text)
    assert shown.locator(".math-inline .katex").count() == inline
    assert shown.locator(".math-display .katex").count() == display
    assert kept in shown.inner_text()


def test_formulas_have_words_for_screen_readers(page):
    shown = show(page, "$\\frac{1}{2}$")
    assert shown.locator("math mfrac").count() == 1
    # The policy allows no styles in documents, so KaTeX sets them one by one.
    assert shown.locator(".katex-html [style]").count() > 0
    assert shown.locator(".vlist > span").first.evaluate("e => e.style.top") != ""


@pytest.mark.parametrize("tex", [r"\frac{1", r"\nocommand", r"\href{javascript:alert(1)}{x}",
                                 r"\includegraphics{https://example.org/a.png}",
                                 r"\def\a{\a\a}\a", r"\htmlClass{menu}{x}"])
def test_formulas_that_fail_are_shown_as_written(page, tex):
    shown = show(page, f"Look: ${tex}$ here")
    assert shown.locator("a[href^=javascript], img").count() == 0
    assert "here" in shown.inner_text()
    assert "alert(1)" not in tex or shown.locator("[href]").count() == 0


def test_code_is_framed_coloured_and_copied(browser, server_url):
    with opened(browser, server_url, permissions=["clipboard-read", "clipboard-write"]) as page:
        source = 'def f(x):\n    return "<b>" + x  # <script>'
        shown = show(page, f"```python\n{source}\n```")
        assert shown.locator(".code-head span").inner_text() == "python"
        shown.locator(".hljs-keyword").first.wait_for()
        assert shown.locator("pre").inner_text() == source
        shown.locator(".copy-code").click()
        assert page.page.evaluate("navigator.clipboard.readText()") == source


def test_a_growing_answer_keeps_its_finished_parts(page):
    """The blocks that are complete stay the same elements."""
    kept = page.page.evaluate("""async () => {
      const {MarkdownView} = await import('/modules/markdown.js');
      const place = document.createElement('div');
      const view = new MarkdownView(place);
      view.show('one\\n\\n```c\\nint x;\\n```\\n\\nthr');
      const first = [...place.children];
      view.show('one\\n\\n```c\\nint x;\\n```\\n\\nthree **bold**');
      const second = [...place.children];
      view.show('# other');
      return [first[0] === second[0], first[1] === second[1], first[2] === second[2],
              second[2].innerHTML, place.children.length];
    }""")
    assert kept == [True, True, False, "<p>three <strong>bold</strong></p>\n", 1]


ATTACKS = [
    "<script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 1'>",
    "<svg onload='window.hacked = 1'><script>window.hacked=1</script></svg>",
    "<iframe srcdoc='<script>parent.hacked = 1</script>'></iframe>",
    "<a href='javascript:window.hacked = 1'>click</a>",
    "[click](javascript:window.hacked=1)",
    "[click](JaVaScRiPt:window.hacked=1)",
    "[click](java&#x0A;script:window.hacked=1)",
    "[click](data:text/html,<script>window.hacked=1</script>)",
    "![x](x\" onerror=\"window.hacked=1)",
    "![x](javascript:window.hacked=1)",
    "<https://a.b\" onmouseover=\"window.hacked=1>",
    "<style>body { display: none }</style>",
    "<form action='https://example.org'><button>send</button></form>",
    "<math><mtext><table><mglyph><style><img src=x onerror=window.hacked=1></style></mglyph></table></mtext></math>",
    "<noscript><p title='</noscript><img src=x onerror=window.hacked=1>'></noscript>",
    "<details open ontoggle='window.hacked = 1'>x</details>",
    "```\"><img src=x onerror=window.hacked=1>\ncode\n```",
    "```x onload=window.hacked=1\n<img src=x onerror=window.hacked=1>\n```",
    "$<img src=x onerror=window.hacked=1>$",
    "$\\href{javascript:window.hacked=1}{x}$",
    "| <img src=x onerror=window.hacked=1> |\n| --- |\n| <script>window.hacked=1</script> |",
    "&lt;script&gt;window.hacked=1&lt;/script&gt;",
    "<br onclick='window.hacked=1'/>",
    "<!-- <img src=x onerror=window.hacked=1> -->",
    "<base href='https://example.org/'><meta http-equiv=refresh content='0;url=https://example.org'>",
    "<input autofocus onfocus='window.hacked=1'>",
    "<div id=messages class=sidebar>clobber</div><a name=settings id=settings>x</a>",
]

HARMFUL = ", ".join([
    "script", "img", "iframe", "style", "form[action]", "object", "embed", "base", "meta", "noscript",
    "a[href^='javascript' i]", "a[href^='data' i]", "[onerror]", "[onload]", "[onclick]", "[onfocus]",
    "[ontoggle]", "[onmouseover]", "a[name]"])


def assert_harmless(page, where):
    assert page.page.locator(where).first.locator(HARMFUL).count() == 0
    assert page.page.locator("[id=messages], [id=settings]").count() == 2
    assert page.page.evaluate("window.hacked") is None


def test_what_the_model_writes_runs_nothing(page):
    for attack in ATTACKS:
        shown = show(page, attack)
        assert_harmless(page, "#message-list")
        if attack.startswith("<") and not attack.startswith("<https"):
            assert attack.split("\n")[0][:8].rstrip("> ") in shown.inner_text(), attack


def test_what_others_write_stays_as_written(page):
    attack = "<img src=x onerror='window.hacked = 1'><script>window.hacked = 1</script>"
    call = {"index": 0, "id": "c0", "type": "function",
            "function": {"name": attack, "arguments": json.dumps({"a": attack})}}
    page.script([chunk({"reasoning_content": attack}), chunk({"tool_calls": [call]}),
                 chunk({}, "tool_calls", model=attack)], content("done"))
    page.send(attack)
    page.page.wait_for_selector(".call-answer textarea")
    page.page.click(".thinking summary")
    assert page.page.locator(".user-text").inner_text() == attack
    assert page.page.locator(".reasoning-text").inner_text() == attack
    assert page.page.locator(".call-head code").inner_text() == attack
    assert json.loads(page.page.locator(".call pre").inner_text()) == {"a": attack}
    assert page.page.locator("#title").inner_text().startswith("<img src=x")
    page.page.fill(".call-answer textarea", attack)
    page.press("Send result")
    page.page.wait_for_selector(".call-result summary")
    page.page.click(".call-result summary")
    assert page.page.locator(".call-result pre").inner_text() == attack
    page.script((400, {"error": {"message": attack, "code": attack}}))
    page.ask("again")
    assert page.page.locator(".problem-said").inner_text() == attack
    assert_harmless(page, "body > .app")


def test_an_imported_file_runs_nothing(page):
    attack = "<img src=x onerror='window.hacked = 1'>"
    nodes = {
        "a\"><b>": {"id": "a\"><b>", "parent": None, "role": "user", "content": attack},
        "b": {"id": "b", "parent": "a\"><b>", "role": "assistant", "content": attack, "reasoning": attack,
              "finish": attack, "stats": {"seconds": attack}, "error": {"title": attack},
              "toolCalls": [{"id": attack, "name": attack, "arguments": attack}]}}
    file = {"format": "cachalot-conversations", "version": 1, "conversations": [
        {"title": attack, "nodes": nodes, "leaf": "b", "settings": {"system": attack, "seed": attack}}]}
    page.page.set_input_files("#import-file", files=[
        {"name": "x.json", "mimeType": "application/json", "buffer": json.dumps(file).encode()}])
    page.page.click(f'#conversation-list .open:has-text("onerror")')
    assert page.page.locator(".user-text").inner_text() == attack
    assert attack in page.page.locator(".message.assistant .markdown").inner_text()
    assert_harmless(page, "body > .app")


def test_thoughts_are_folded_and_timed(page):
    page.script([chunk({"reasoning_content": "Let me "}), chunk({"reasoning_content": "see."}),
                 chunk({"content": "Yes."}), chunk({}, "stop")])
    answer = page.ask("well?")
    summary = answer.locator(".thinking summary")
    assert summary.inner_text().startswith("Thought for ")
    assert not answer.locator(".reasoning-text").is_visible()
    summary.press("Enter")
    assert answer.locator(".reasoning-text").inner_text() == "Let me see."


def test_speed_and_tokens_are_shown(page):
    page.script(content("Yes.", usage={"prompt_tokens": 1234, "completion_tokens": 56,
                                       "prompt_cache_hit_tokens": 1024},
                        timings={"predicted_per_second": 42.42, "prompt_ms": 500}))
    stats = page.ask("well?").locator(".message-tools .stats")
    assert stats.inner_text().startswith("42 tok/s · 56 tokens · prompt 1,234 (1,024 cached)")


ERRORS = [
    ((429, {"error": {"message": "The queue is full.", "code": "rate_limit"}}, {"Retry-After": "7"}),
     "The server is busy", "The queue is full.", "Try again in 7 s."),
    ((400, {"error": {"message": "too long", "code": "context_length_exceeded"}}),
     "longer than the model", "too long", "Start a new conversation"),
    ((500, {"error": {"message": "boom", "code": "internal_error"}}), "The server failed", "boom", "log"),
    ((413, {"error": {"message": "too large"}}), "too large for one request", "too large", "edit"),
    ([chunk({"content": "Half"}), {"error": {"message": "lost it", "code": "internal_error"}}],
     "The server failed", "lost it", "Try again"),
]


@pytest.mark.parametrize("answer, title, said, advice", ERRORS)
def test_errors_say_what_to_do(page, answer, title, said, advice):
    page.script(answer, content("Better."))
    page.ask("well?")
    problem = page.page.locator(".problem")
    assert title in problem.locator("strong").inner_text()
    assert said in problem.locator(".problem-said").inner_text()
    assert advice in problem.inner_text()
    page.press("Try again")
    page.page.wait_for_selector(".problem", state="detached")
    page.idle()
    assert page.text() == "Better."


def test_a_cut_connection_keeps_what_came(page):
    page.page.unroute("**/v1/chat/completions")
    page.page.route("**/v1/chat/completions", lambda route: route.fulfill(
        content_type="text/event-stream",
        body="data: " + json.dumps(chunk({"content": "Half an answer"})) + "\n\n"))
    page.ask("well?")
    assert page.text() == "Half an answer"
    assert "ended before" in page.page.locator(".problem").inner_text()
    page.script(content(" and the rest."))
    page.press("Continue")
    page.page.wait_for_selector(".problem", state="detached")
    page.idle()
    assert page.text() == "Half an answer and the rest."
    assert page.requests[-1]["messages"][-1] == {
        "role": "assistant", "content": "Half an answer", "prefix": True}


def test_a_key_is_asked_for_and_sent(page):
    page.script((401, {"error": {"message": "Missing key.", "code": "invalid_api_key"}}))
    page.ask("well?")
    page.press("Enter the API key")
    assert page.page.evaluate("document.activeElement.id") == "api-key"
    page.page.keyboard.type("secret")
    with page.page.expect_request("**/v1/models"):
        page.page.keyboard.press("Enter")
    page.page.keyboard.press("Escape")
    keys = []
    page.page.on("request", lambda request: keys.append(request.headers.get("authorization"))
                 if request.url.endswith("/chat/completions") else None)
    page.script(content("Open."))
    page.press("Try again")
    page.page.wait_for_selector(".problem", state="detached")
    page.idle()
    assert page.text() == "Open."
    assert keys == ["Bearer secret"]


def test_loading_is_shown_until_the_model_is_there(page):
    replies = [(503, {"status": "loading", "progress": 0.25}), (503, {"status": "loading", "progress": 0.5})]

    def health(route):
        status, body = replies.pop(0) if replies else (200, {"status": "ok"})
        route.fulfill(status=status, json=body)

    page.page.route("**/health", health)
    page.page.reload()
    page.page.wait_for_selector('#server[data-state="loading"]')
    assert "25 %" in page.page.locator("#banner").inner_text()
    page.page.fill("#composer-text", "early")
    assert page.page.locator("#send").is_disabled()
    page.wait_ready()
    assert not page.page.locator("#banner").is_visible()
    assert page.page.locator("#send").is_enabled()
    page.page.fill("#composer-text", "")
    page.page.unroute("**/health")


def test_several_calls_are_answered_together(page):
    calls = [{"index": index, "id": f"c{index}", "type": "function",
              "function": {"name": "get_weather", "arguments": json.dumps({"city": city})}}
             for index, city in enumerate(["Oslo", "Rome"])]
    page.script([chunk({"tool_calls": calls}), chunk({}, "tool_calls")], content("Cold and warm."))
    page.send("weather?")
    fields = page.page.locator(".call-answer textarea")
    fields.nth(1).wait_for()
    page.page.fill("#composer-text", "something else")
    page.page.press("#composer-text", "Enter")
    assert "waits for the result" in page.page.locator(".toast").inner_text()
    assert page.page.input_value("#composer-text") == "something else"
    page.page.fill("#composer-text", "")
    fields.nth(0).fill("-4")
    fields.nth(0).press("Enter")
    page.page.keyboard.type("21")
    page.page.keyboard.press("Enter")
    page.page.wait_for_selector(".message.assistant >> nth=1")
    page.idle()
    assert page.text() == "Cold and warm."
    assert [one["content"] for one in page.requests[-1]["messages"][-2:]] == ["-4", "21"]
    assert [one["tool_call_id"] for one in page.requests[-1]["messages"][-2:]] == ["c0", "c1"]
