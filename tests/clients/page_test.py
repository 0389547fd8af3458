"""A user and the built-in model: the page on the real server."""

import json
import time

import pytest

from conftest import Server
from page_support import content, opened

STORY = "Tell me a story about Tom the fox, a key and the forest."
WEATHER = [{"type": "function", "function": {
    "name": "get_weather", "description": "Get the current weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]


@pytest.fixture
def page(browser, server_url):
    with opened(browser, server_url) as opened_page:
        opened_page.settings(temperature=0)
        yield opened_page


@pytest.fixture
def slow_page(browser):
    """Of a server whose answers take seconds on any machine."""
    with Server("--isa", "generic", "--drafts", "off") as server:
        with opened(browser, server.url) as opened_page:
            opened_page.settings(temperature=0)
            yield opened_page


def endless(body):
    """The end token is forbidden: the answer goes on until somebody stops it, or the context ends."""
    body["logit_bias"] = {"1": -100}
    body["max_tokens"] = 3900


def start_endless(page):
    page.change_requests(endless)
    page.thinking(False)
    page.send(STORY)
    page.page.locator(".streaming .markdown p").first.wait_for()


def test_an_answer_streams_and_ends(page):
    page.thinking(False)
    page.ask("What is the capital of France?")
    assert page.text() == "The capital of France is Paris."
    stats = page.answers().last.locator(".message-tools .stats").inner_text()
    assert "tok/s" in stats and "8 tokens" in stats and "prompt" in stats
    assert page.entries() == ["What is the capital of France?"]
    assert page.page.title().startswith("What is the capital of France?")


def test_thinking_is_apart_from_the_answer(page):
    answer = page.ask("What is the capital of Japan?")
    assert page.text() == "The capital of Japan is Tokyo."
    answer.locator(".thinking summary").click()
    assert answer.locator(".reasoning-text").inner_text().startswith("The user asks for the capital")


def test_text_appears_while_it_is_written(slow_page):
    page = slow_page
    start_endless(page)
    lengths = []
    for _ in range(6):
        lengths.append(len(page.page.locator(".streaming .markdown").inner_text()))
        time.sleep(0.3)
    page.page.keyboard.press("Escape")
    page.idle()
    assert lengths == sorted(lengths) and len(set(lengths)) >= 3


def test_escape_stops_and_what_came_is_kept(page):
    start_endless(page)
    started = time.monotonic()
    page.page.keyboard.press("Escape")
    page.idle()
    assert time.monotonic() - started < 2
    assert "You stopped this answer" in page.page.locator(".note").inner_text()
    kept = page.text()
    assert kept
    page.open()
    assert page.text() == kept
    assert page.page.get_by_role("button", name="Continue", exact=True).is_visible()


def test_an_interrupted_answer_is_kept(slow_page):
    page = slow_page
    start_endless(page)
    page.page.wait_for_timeout(2500)  # it is stored every two seconds
    page.open()
    assert "closed while this answer was written" in page.page.locator(".note").inner_text()
    assert page.text()
    assert page.page.get_by_role("button", name="Continue", exact=True).is_visible()


def test_a_stopped_answer_is_continued(page):
    page.script(content("The capital of"))
    page.thinking(False)
    page.ask("What is the capital of France?")
    # As if the user had stopped it there.
    page.page.unroute("**/v1/chat/completions")
    page.script([{"choices": [{"index": 0, "delta": {"content": "The capital of"},
                               "finish_reason": "length"}]}])
    page.page.get_by_role("button", name="Ask again").click()
    page.page.get_by_role("button", name="Continue", exact=True).wait_for()
    page.page.unroute("**/v1/chat/completions")
    page.press("Continue")
    page.page.locator(".note").wait_for(state="detached")
    page.idle()
    assert page.text() == "The capital of France is Paris."


def test_the_stop_button_stops(page):
    start_endless(page)
    page.page.get_by_role("button", name="Stop (Esc)").click()
    page.idle()
    page.page.get_by_role("button", name="Send").wait_for()
    page.page.unroute("**/v1/chat/completions")
    page.ask("What is 7 + 8?")
    assert page.text() == "7 + 8 = 15."


def test_asking_again_keeps_both_versions(page):
    page.thinking(False)
    page.ask("What is the opposite of hot?")
    page.page.get_by_role("button", name="Ask again").click()
    page.page.get_by_text("2/2").wait_for()
    page.idle()
    assert page.text() == "The opposite of hot is cold."
    page.page.get_by_role("button", name="Earlier version").click()
    assert page.page.locator(".version").inner_text() == "1/2"
    assert page.text() == "The opposite of hot is cold."


def test_an_edited_message_goes_on_from_there(page):
    page.thinking(False)
    page.ask("My name is Clara.")
    page.ask("What is my name?")
    assert page.text() == "Your name is Clara."
    first = page.page.locator(".message.user").first
    first.hover()
    first.get_by_role("button", name="Edit your message").click()
    page.page.locator(".edit-text").fill("My name is Leo.")
    page.page.locator(".edit-text").press("Enter")
    page.page.get_by_text("2/2").wait_for()
    page.idle()
    assert page.answers().count() == 1
    page.ask("What is my name?")
    assert page.text() == "Your name is Leo."
    first = page.page.locator(".message.user").first
    first.hover()
    first.get_by_role("button", name="Earlier version").click()
    assert page.text() == "Your name is Clara."


def test_a_second_turn_finds_the_first_in_the_cache(page):
    page.thinking(False)
    page.ask("My name is Clara.")
    page.ask("What is my name?")
    assert "cached)" in page.answers().last.locator(".message-tools .stats").inner_text()


def test_a_tool_is_called_and_its_result_used(page):
    page.thinking(False)
    page.settings(tools=json.dumps(WEATHER))
    page.send("What is the weather in Paris?")
    page.page.wait_for_selector(".call-answer textarea")
    assert page.page.locator(".call-head code").inner_text() == "get_weather"
    assert json.loads(page.page.locator(".call pre").inner_text()) == {"city": "Paris"}
    page.page.fill(".call-answer textarea", '{"temp": 21, "sky": "sunny"}')
    page.page.keyboard.press("Enter")
    page.page.wait_for_selector(".message.assistant >> nth=1")
    page.idle()
    assert page.text() == "It is sunny in Paris with 21 degrees."
    page.open()
    assert page.text() == "It is sunny in Paris with 21 degrees."


def test_settings_reach_the_server(page):
    page.change_requests(lambda body: None)
    page.settings(system="Answer briefly.", max_tokens=3, seed=5, top_p=0.9)
    page.page.click("#thinking-chip")
    page.page.fill("#effort", "33")
    page.page.keyboard.press("Escape")
    page.ask("What is the chemical symbol of gold?")
    body = page.requests[-1]
    assert body["messages"][0] == {"role": "system", "content": "Answer briefly."}
    assert (body["max_tokens"], body["seed"], body["top_p"], body["temperature"]) == (3, 5, 0.9, 0)
    assert body["reasoning_effort"] == 33
    assert "longest length" in page.page.locator(".note").inner_text()


def test_a_setting_that_cannot_be_is_marked_and_not_sent(page):
    page.change_requests(lambda body: None)
    page.settings(temperature=9, tools="[")
    page.page.click("#settings-open")
    assert page.page.locator("#temperature-error").inner_text() == "A number from 0 to 2"
    assert page.page.get_attribute("#temperature", "aria-invalid") == "true"
    assert page.page.locator("#tools-error").inner_text().startswith("Not JSON")
    page.page.keyboard.press("Escape")
    page.ask("Hello!")
    assert page.requests[-1]["temperature"] == 0 and "tools" not in page.requests[-1]


def test_conversations_survive_a_reload(page):
    page.thinking(False)
    page.ask("What is 7 + 8?")
    page.page.click(".sidebar .new-chat")
    page.ask("What is 6 * 9?")
    page.open()
    assert page.text() == "6 * 9 = 54."
    assert page.entries() == ["What is 6 * 9?", "What is 7 + 8?"]
    page.page.click('#conversation-list .open:has-text("7 + 8")')
    assert page.text() == "7 + 8 = 15."
    # A conversation keeps its settings.
    page.page.click("#settings-open")
    assert page.page.input_value("#temperature") == "0"


def test_two_answers_are_written_at_once(slow_page):
    page = slow_page
    start_endless(page)
    page.page.click(".sidebar .new-chat")
    page.page.unroute("**/v1/chat/completions")
    page.ask("What is 6 * 9?")
    assert page.text() == "6 * 9 = 54."
    page.page.click('#conversation-list .open:has-text("Tom the fox")')
    before = len(page.text())
    page.page.wait_for_timeout(1000)
    assert len(page.text()) > before
    page.page.keyboard.press("Escape")
    page.idle()


def test_renaming_deleting_undoing_searching(page):
    page.thinking(False)
    page.ask("What is 7 + 8?")
    entry = page.page.locator("#conversation-list .open").first
    entry.focus()
    page.page.keyboard.press("F2")
    page.page.keyboard.type("Sums")
    page.page.keyboard.press("Enter")
    assert page.entries() == ["Sums"]
    page.page.fill("#conversation-filter", "15")
    assert page.entries() == ["Sums"]
    page.page.fill("#conversation-filter", "absent")
    assert page.entries() == []
    page.page.fill("#conversation-filter", "")
    page.page.get_by_role("button", name="Delete Sums").click()
    assert page.entries() == []
    page.press("Undo")
    assert page.entries() == ["Sums"]
    page.open()
    assert page.entries() == ["Sums"]
    assert page.text() == "7 + 8 = 15."


def test_conversations_travel_as_a_file(page, browser, server_url):
    page.thinking(False)
    page.ask("What is 7 + 8?")
    with page.page.expect_download() as download:
        page.page.click("#export")
    path = download.value.path()
    with opened(browser, server_url) as other:
        other.page.set_input_files("#import-file", str(path))
        other.page.get_by_text("Imported 1 conversation.").wait_for()
        other.page.click('#conversation-list .open:has-text("7 + 8")')
        assert other.text() == "7 + 8 = 15."


def test_another_tab_sees_it(page):
    other = page.context.new_page()
    other.goto(page.url + "/")
    other.wait_for_selector("html[data-ready]")
    page.thinking(False)
    page.ask("What is 7 + 8?")
    other.locator('#conversation-list .open:has-text("7 + 8")').click()
    other.get_by_text("7 + 8 = 15.").wait_for()
    other.close()


def test_a_locked_server_is_unlocked(browser):
    with Server("--api-key", "secret") as server, opened(browser, server.url) as page:
        page.page.wait_for_selector('#server[data-state="locked"]')
        assert "asks for an API key" in page.page.locator("#banner").inner_text()
        page.press("Enter the key")
        page.page.keyboard.type("secret")
        page.page.keyboard.press("Enter")
        page.wait_ready()
        page.page.keyboard.press("Escape")
        page.thinking(False)
        page.ask("What is 7 + 8?")
        assert "15" in page.text()


def test_the_whole_page_comes_from_its_server(page):
    """Page.close asserts that no request went elsewhere; here, that files are not fetched twice."""
    page.ask("Hello!")
    response = page.page.request.get(page.url + "/")
    assert "default-src 'none'" in response.headers["content-security-policy"]
    tag = response.headers["etag"]
    again = page.page.request.get(page.url + "/", headers={"If-None-Match": tag})
    assert again.status == 304
    assert page.page.request.get(page.url + "/../../etc/passwd").status == 404
