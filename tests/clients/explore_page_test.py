"""The explorer on the real server and as a file: every part, search, addresses, keys, phone, axe."""

import os
import subprocess
import urllib.request

import pytest

from conftest import PROGRAM, ROOT
from explore_support import explorer, parts_of
from page_access_test import assert_no_faults

RELEASED = ROOT / "tests/data/released"


@pytest.fixture(scope="module")
def model(server_url):
    import json

    with urllib.request.urlopen(server_url + "/explore/model.json") as answer:
        return json.load(answer)


@pytest.fixture(scope="module")
def released_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("explorer") / "released.html"
    subprocess.run([PROGRAM, "inspect", str(RELEASED), "--html", str(path)], check=True, stdout=subprocess.DEVNULL)
    return path


@pytest.fixture
def page(browser, server_url):
    with explorer(browser, server_url) as opened_page:
        yield opened_page


def structure_of(model, layer):
    return next(one["node"] for one in model["layers"] if one["layer"] == layer)


def one_part(model, **wanted):
    """A part of the tree whose fields are those given."""
    return next(node for node in parts_of(model["root"])
                if all(node.get(name) == value for name, value in wanted.items()))


def open_all(page, model):
    """Opens every part and returns those whose page lacks something."""
    ids = [node["id"] for node in parts_of(model["root"])]
    return page.page.evaluate("""async (ids) => {
      const wrong = [];
      for (const id of ids) {
        location.hash = '#' + id;
        await new Promise((done) => addEventListener('hashchange', done, {once: true}));
        const page = document.getElementById('page');
        const crumb = document.querySelector('#breadcrumb [aria-current]');
        // Code may speak of NaN.
        const prose = page.cloneNode(true);
        for (const code of prose.querySelectorAll('pre, code')) code.remove();
        if (!page.querySelector('h1')?.textContent || crumb?.textContent !== page.querySelector('h1').textContent ||
            page.querySelector('.formula > code') || page.querySelector('.notice') || /undefined|NaN|\\[object/.test(prose.textContent)) {
          wrong.push(id);
        }
      }
      return wrong;
    }""", ids[1:] + ids[:1])


def test_every_part_opens(page, model):
    assert open_all(page, model) == []


def test_a_part_shows_what_it_is(page, model):
    node = next(node for node in parts_of(model["root"]) if node["count"] > 1 and
                any(weight["tensor"].endswith("attn.wo_b.weight") for weight in node["weights"]))
    page.open(node["id"])
    text = page.page.locator("#page").inner_text()
    assert page.title() == node["title"] and node["sentence"] in text
    assert f"{node['parameters']['total']:,}" in text and f"{node['parameters']['instance']:,}" in text
    for weight in node["weights"]:
        assert weight["tensor"] in text and weight["orientation"] in text
    place = node["evidence"]["code"][0]
    assert f"{place['file']}:{place['begin']}–{place['end']}" in text
    assert page.page.locator(".formula .katex").count() == 1
    assert page.page.locator(".row.chosen").count() == len(node["layers"])
    crumbs = page.page.locator("#breadcrumb li").all_inner_texts()
    assert len(crumbs) > 2 and crumbs[-1].startswith(node["title"])


def test_costs_are_told_of_what_they_are_for(page, model):
    def rows(part):
        page.open(part)
        cost = page.page.locator("#page section").filter(has=page.page.locator("h2", has_text="Cost"))
        return cost.locator("tbody th").all_inner_texts()

    tokens = ["token of a reply", "token of a prompt"]
    draft = next(one["node"] for one in model["layers"] if one["draft"])
    assert rows(structure_of(model, 0)) == tokens
    assert rows(draft) == ["proposal"]
    # The windows' tokens, in a reply and in a prompt, apart from the proposal.
    assert rows(draft.split("/")[0])[2:] == ["proposal"]
    assert rows("vision") == ["picture"]
    assert rows("shortcut") == [f"step of the shortcut, {model['prefill_tokens']:,} tokens"]


def test_search_finds_titles_tensors_and_keys(page, model):
    node = next(node for node in parts_of(model["root"]) if "o_lora_rank" in node["evidence"]["config"])
    keys = page.page.keyboard
    keys.press("/")
    keys.type("o_lora_rank")
    page.page.locator("#search-results li").first.wait_for()
    keys.press("Enter")
    assert page.title() == node["title"] or "o_lora_rank" in page.page.locator("#page").inner_text()
    assert page.page.locator("#search-results").is_hidden()
    keys.press("/")
    keys.type("layers.4.attn.wo_b.weight")
    page.page.locator("#search-results li").first.wait_for()
    keys.press("Enter")
    assert "attn.wo_b.weight" in page.page.locator("#page").inner_text()
    keys.press("/")
    keys.type("no such thing anywhere")
    assert page.page.locator("#search-results").inner_text() == "Nothing is called that."
    keys.press("Escape")
    assert page.page.locator("#search-results").is_hidden()


def test_an_address_names_a_part(page, model):
    node = one_part(model, operation="moe_experts")
    page.open(node["id"])
    assert page.title() == node["title"]
    page.page.locator("#breadcrumb a").first.click()
    assert page.title() == model["root"]["title"]
    page.page.go_back()
    page.page.wait_for_function("(title) => document.querySelector('#page h1').textContent === title", arg=node["title"])
    page.open("no/such/part")
    assert "There is no part called" in page.page.locator(".notice").inner_text()
    page.open("%E0%A4%A")
    assert "There is no part called" in page.page.locator(".notice").inner_text()
    page.open("/totals")
    assert page.title() == "Totals" and f"{model['totals']['parameters']:,}" in page.page.locator("#page").inner_text()
    assert page.page.locator(".reconciled.good").count() == 1


def test_keys_lead_through_the_tree(page, model):
    keys, root = page.page.keyboard, model["root"]
    keys.press("ArrowRight")
    assert page.part() == root["children"][0]["id"]
    keys.press("ArrowDown")
    assert page.part() == root["children"][1]["id"]
    keys.press("ArrowUp")
    assert page.part() == root["children"][0]["id"]
    keys.press("Escape")
    assert page.part() == root["id"]
    keys.press("t")
    focused = "document.activeElement.querySelector('.tree-title')?.textContent"
    assert page.page.evaluate(focused) == root["title"]
    keys.press("ArrowDown")
    assert page.part() == root["children"][0]["id"] and page.page.evaluate(focused) == page.title()
    keys.press("ArrowLeft")
    keys.press("ArrowLeft")
    assert page.part() == root["id"]
    keys.press("d")
    assert page.page.evaluate("document.activeElement.closest('.stack') !== null")
    keys.press("End")
    keys.press("Enter")
    assert page.part() != root["id"]
    keys.press("?")
    assert page.page.locator("#help").is_visible()
    keys.press("Escape")
    assert not page.page.locator("#help").is_visible()


def test_the_diagram_draws_every_hand_off(page, model):
    for kind in ("compressed_kv", "index_keys", "picks", "candidates"):
        wanted = {(one["source"], to) for one in model["handoffs"] if one["kind"] == kind
                  for to in one["consumers"] if to != one["source"]}
        assert page.page.locator(f".arc.kind-{kind}").count() == len(wanted), kind
        if not wanted:
            continue
        page.page.locator(f".legend-entry.kind-{kind}").click()
        assert page.page.locator(f".arc.kind-{kind}:visible").count() == 0
        page.page.locator(f".legend-entry.kind-{kind}").click()
    # Hashes go to the layers with n-grams; tapped layers to the draft head, whose windows go to its stages.
    assert page.page.locator(".arc.kind-ngrams").count() == sum(one["engram"] for one in model["layers"])
    drafts = sum(one["draft"] for one in model["layers"])
    assert page.page.locator(".arc.kind-taps").count() == len(model["config"]["dspark_target_layer_ids"]) + drafts
    flow = page.page.locator(".flow-shape").all_text_contents()
    assert flow.count("token ids") == 2 and any(text.startswith("logits [") for text in flow)
    source = next(one["source"] for one in model["handoffs"] if one["kind"] == "compressed_kv")
    assert page.page.get_by_role("group", name="Hand-offs", exact=True).locator("tbody tr").count() == len(model["handoffs"])
    row = page.page.locator(".row").nth(source)
    row.hover()
    assert page.page.locator(".arc.lit").count() > 0
    row.click()
    assert page.part() == structure_of(model, source)
    before = page.page.locator(".stack > g").get_attribute("transform")
    page.page.get_by_role("button", name="Zoom in").click()
    assert page.page.locator(".stack > g").get_attribute("transform") != before
    page.page.get_by_role("button", name="Show all").click()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(browser, server_url, model, scheme):
    with explorer(browser, server_url, color_scheme=scheme, reduced_motion="reduce") as page:
        assert_no_faults(page, "whole")
        page.open(one_part(model, operation="moe_experts")["id"])
        page.page.keyboard.press("t")
        assert_no_faults(page, "part")
        page.page.keyboard.press("/")
        page.page.keyboard.type("attention")
        assert_no_faults(page, "search")
        page.open("/totals")
        assert_no_faults(page, "totals")


def test_a_phone_has_room_for_all(browser, server_url, model):
    phone = {"viewport": {"width": 390, "height": 780}, "has_touch": True, "is_mobile": True}
    with explorer(browser, server_url, **phone) as page:
        for node in list(parts_of(model["root"]))[::5]:
            page.go(node["id"])
            assert page.page.evaluate("document.documentElement.scrollWidth") == 390, node["id"]
            assert page.page.evaluate("document.getElementById('main').scrollWidth") <= 390, node["id"]
        page.page.get_by_role("button", name="Diagram").tap()
        assert page.page.locator(".stack").is_visible() and not page.page.locator("#page").is_visible()
        page.page.locator(".row").nth(3).tap()
        assert page.page.locator("#page h1").is_visible()
        assert page.part() == structure_of(model, 3)


def test_a_small_phone_has_a_whole_header(browser, server_url):
    with explorer(browser, server_url, viewport={"width": 320, "height": 640}, is_mobile=True, has_touch=True) as page:
        page.page.evaluate("document.getElementById('view-watch').hidden = false")
        assert page.page.evaluate("document.documentElement.scrollWidth") == 320
        box = {name: page.page.locator(name).bounding_box() for name in (".search", ".panes", "#theme", ".views")}
        assert box[".search"]["y"] + box[".search"]["height"] <= box[".panes"]["y"]
        assert box["#theme"]["y"] < box[".search"]["y"] and abs(box["#theme"]["y"] - box[".views"]["y"]) < 12


def test_the_pages_lead_to_each_other(page):
    page.page.click("#view-chat")
    page.page.wait_for_selector("#composer-text")
    page.page.get_by_role("link", name="How the model is built").click()
    page.page.wait_for_selector('html[data-ready="true"]')


def test_the_released_model_fits_in_a_file(browser, released_file):
    assert os.path.getsize(released_file) < 3_000_000
    address = released_file.as_uri()
    with explorer(browser, "file://", address=address) as page:
        page.context.set_offline(True)
        page.open()
        painted = page.page.evaluate("""() => performance.getEntriesByType('paint')
          .find((one) => one.name === 'first-contentful-paint').startTime""")
        assert painted < 1000, painted
        tree = page.page.evaluate("JSON.parse(document.getElementById('model-data').textContent)")
        assert open_all(page, tree) == []
        page.open("/totals")
        text = page.page.locator("#page").inner_text()
        assert "reconciled with the configuration’s tensors" in text and "checkpoint" not in text
        assert "763,205,315,794" in text and "510,286,023,000" in text and "96,085" in text
        assert page.page.locator("#view-chat, #view-watch:visible").count() == 0


def test_a_mismatch_is_shown(browser, server_url, model):
    wrong = {**model, "totals": {**model["totals"], "reconciled": False, "mismatches": [
        {"tensor": "layers.5.attn.wo_b.weight", "expected": "F8_E4M3 [256, 256]", "found": "nothing"}]}}
    with explorer(browser, server_url) as page:
        page.page.route("**/explore/model.json", lambda route: route.fulfill(json=wrong))
        page.open("/totals")
        text = page.page.locator("#page").inner_text()
        assert "disagree about 1 tensor" in text and "layers.5.attn.wo_b.weight" in text
        page.open()
        assert "disagree" in page.page.locator("#page").inner_text()
