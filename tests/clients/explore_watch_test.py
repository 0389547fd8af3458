"""Watching a step: with answers written in the test, and with the built-in model."""

import json
import urllib.request

import pytest

from explore_support import canned_trace, explorer, parts_of
from page_access_test import assert_no_faults

PROMPT = "The fox went to the forest and found a key under the old tree"


@pytest.fixture(scope="module")
def exploring_server(start_server):
    with start_server("--explore") as server:
        yield server


@pytest.fixture(scope="module")
def model(exploring_server):
    with urllib.request.urlopen(exploring_server.url + "/explore/model.json") as answer:
        return json.load(answer)


def watch(page, prompt=PROMPT):
    page.page.fill("#watch-prompt", prompt)
    page.page.click("#watch-start")
    page.page.locator(".watched, #page .notice").wait_for()


def part(page, title):
    return page.page.locator(".watched > section").filter(has=page.page.locator("h2", has_text=title))


@pytest.fixture
def written(browser, exploring_server, model):
    """The page with an answer written in the test."""
    trace = canned_trace(model, PROMPT)
    with explorer(browser, exploring_server.url) as page:
        page.page.route("**/v1/trace", lambda route: route.fulfill(json=trace))
        page.open("/watch")
        page.trace = trace
        yield page


def test_a_step_is_drawn(written, model):
    watch(written)
    texts = written.page.locator(".steps b").all_inner_texts()
    assert texts == ["Prompt", "Drafting", "Drafts checked", "Reply"]
    tokens = part(written, "Steps and tokens").locator(".token")
    assert tokens.count() == len(written.trace["tokens"]) + len(written.trace["generated"])
    for title in ("Experts", "Picks", "N-gram memory", "Attention sinks", "Mixing of the copies", "Time and memory"):
        assert part(written, title).count() == 1, title
    assert written.page.locator(".row .block-time").count() > 5
    # In, kept and added of every sublayer, by copy.
    mixes = part(written, "Mixing of the copies")
    assert mixes.locator("canvas").count() == 2 * len(written.trace["steps"][0]["layers"])
    mix = written.trace["steps"][0]["layers"][0]["mix"]
    copies, comb = model["config"]["hc_mult"], mix["attention_comb"][-1]
    canvas = mixes.locator("canvas").first
    box = canvas.bounding_box()
    cell = box["width"] / (copies + 4)
    canvas.hover(position={"x": 4.5 * cell, "y": 1.5 * box["height"] / copies})
    assert mixes.locator(".readout").inner_text() == f"Layer 0, attention, kept: of copy 1, in copy 2: {comb[copies + 2]:.3f}"
    # The last token of the prompt: what the first index layer picked for it, entry by entry.
    step = written.trace["steps"][0]
    first = next(one for one in step["layers"] if "picks" in one)
    wanted = {entry * first["ratio"] + i for entry in first["picks"][-1] for i in range(first["ratio"])}
    drawn = part(written, "Picks").locator(".token")
    found = {i for i in range(drawn.count()) if "picked" in drawn.nth(i).get_attribute("class").split()}
    assert found == wanted


def test_a_token_or_a_step_can_be_chosen(written):
    watch(written)
    tokens = part(written, "Steps and tokens").locator(".token")
    tokens.nth(2).click()
    assert tokens.nth(2).get_attribute("aria-pressed") == "true"
    assert "“went”" in part(written, "Experts").locator(".readout").inner_text()
    written.page.locator(".steps button").nth(1).click()
    assert part(written, "Drafts").locator(".proposed").count() == 3
    written.page.locator(".steps button").nth(2).click()
    drafts = part(written, "Drafts")
    assert "It" in drafts.locator(".accepted").last.inner_text()
    assert drafts.locator(".accepted").count() == 2 and drafts.locator(".rejected").count() == 1
    assert "2 of 3 drafts accepted" in drafts.inner_text()


def test_a_part_shows_its_own_share(written, model):
    watch(written)
    router = next(node for node in parts_of(model["root"]) if node["operation"] == "route" and node.get("layers"))
    written.page.evaluate("(id) => { location.hash = '#' + id; }", router["id"])
    written.page.wait_for_selector("#in-the-step")
    text = written.page.locator("#in-the-step").inner_text()
    assert "of the step" in text and "One line per layer" in text
    written.page.locator("#in-the-step a", has_text="All of the step").click()
    written.page.wait_for_selector(".watched")
    assert part(written, "Experts").count() == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(browser, exploring_server, model, scheme):
    with explorer(browser, exploring_server.url, color_scheme=scheme, reduced_motion="reduce") as page:
        page.page.route("**/v1/trace", lambda route: route.fulfill(json=canned_trace(model, PROMPT)))
        page.open("/watch")
        assert_no_faults(page, "form")
        watch(page)
        page.page.locator(".steps button").nth(2).click()
        assert_no_faults(page, "watched")


def test_an_error_is_said(written):
    written.page.unroute("**/v1/trace")
    written.page.route("**/v1/trace", lambda route: route.fulfill(
        status=400, json={"error": {"message": "prompt: expected at most 512 tokens, found 600"}}))
    watch(written)
    text = written.page.locator("#page .notice").inner_text()
    assert "expected at most 512 tokens" in text and "settings" not in text
    written.faults.clear()  # the browser reports the status itself


def test_the_built_in_model_draws_its_picks(browser, exploring_server):
    with explorer(browser, exploring_server.url) as page:
        page.page.get_by_role("link", name="Watch a step").click()
        watch(page)
        assert page.page.locator("#page .notice").count() == 0
        assert part(page, "Picks").locator(".token.picked").count() > 0
        assert part(page, "Experts").locator("canvas").count() == 1
        assert part(page, "Time and memory").locator("tbody tr").count() > 3


def test_a_server_without_traces_says_how_to_watch(browser, server_url):
    with explorer(browser, server_url) as page:
        page.open("/watch")
        page.page.get_by_text("cachalot serve -m MODEL --explore").wait_for()
        assert not page.page.locator("#view-watch").is_visible()
        assert page.page.locator("#watch-prompt").count() == 0


@pytest.mark.parametrize("prompt, tokens, words", [
    ("Hello", "0", "found “0”"), ("Hello", "65", "from 1 to 64"), ("Hello", "x", "found “x”"), (" ", "8", "Type a prompt")])
def test_a_wrong_form_is_not_sent(written, prompt, tokens, words):
    sent = []
    written.page.on("request", lambda request: sent.append(request.url))
    written.page.fill("#watch-tokens", tokens)
    watch(written, prompt)
    assert words in written.page.locator("#page .notice").inner_text()
    assert not [url for url in sent if url.endswith("/v1/trace")]
    assert written.page.locator("[aria-invalid=true]").count() == 1


def test_a_long_prompt_tells_how_much_is_shown(browser, exploring_server):
    with explorer(browser, exploring_server.url) as page:
        page.open("/watch")
        watch(page, " ".join(["The fox went to the forest."] * 20))
        first = page.page.locator(".steps button").first.inner_text()
        prompt = part(page, "Steps and tokens").locator(".token:not(.generated)").count()
        assert prompt > 64 and f"{prompt} tokens" in first
        assert f"Of the {prompt} tokens 64 are shown" in part(page, "Steps and tokens").inner_text()
