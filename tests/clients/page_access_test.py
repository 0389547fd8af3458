"""The page without a mouse, by ear, on a phone, in the dark."""

import json

import pytest

from page_support import chunk, content, opened

RICH = """# Title

Some **bold** text with `code`, a [link](https://example.org) and $x^2$.

$$\\sum_{i=1}^n i = \\frac{n(n+1)}{2}$$

| a | b |
| --- | --- |
| 1 | 2 |

```python
def f(x): return "text"  # comment
```

> quoted

- [x] done
"""

CALL = [chunk({"reasoning_content": "I look it up."}),
        chunk({"tool_calls": [{"index": 0, "id": "c0", "type": "function",
                               "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}]}),
        chunk({}, "tool_calls")]


def focused(page):
    return page.page.evaluate("""() => {
      const e = document.activeElement;
      return e.id || e.getAttribute('aria-label') || e.textContent.trim().slice(0, 40);
    }""")


def test_everything_goes_by_keyboard(browser, server_url):
    with opened(browser, server_url) as page:
        keys = page.page.keyboard
        page.wait_ready()
        page.script(content("First."), content("Second."), CALL, content("Sunny."))
        keys.press("Escape")
        keys.press("/")
        assert focused(page) == "composer-text"
        keys.type("one")
        keys.press("Shift+Enter")
        keys.type("line two")
        keys.press("Enter")
        page.page.get_by_text("First.", exact=True).first.wait_for()
        page.idle()
        assert page.page.locator(".user-text").inner_text() == "one\nline two"
        assert focused(page) == "composer-text"

        keys.press("Escape")
        keys.press("n")
        keys.type("two")
        keys.press("Enter")
        page.page.get_by_text("Second.", exact=True).first.wait_for()
        page.idle()

        keys.press("Escape")
        keys.press("l")
        assert focused(page) == "two"
        keys.press("ArrowDown")
        assert focused(page) == "one"
        keys.press("Enter")
        assert page.text() == "First."
        keys.press("F2")
        keys.type("Renamed")
        keys.press("Enter")
        assert focused(page) == "Renamed"
        keys.press("Delete")
        assert page.entries() == ["two"]

        keys.press("Escape")
        keys.press("s")
        assert focused(page) == "settings-title"
        keys.press("Tab")  # close button
        keys.press("Tab")
        assert focused(page) == "system"
        keys.press("Escape")
        assert focused(page) == "settings-open"
        keys.press("Escape")
        keys.press("?")
        assert page.page.locator("#help").is_visible()
        keys.press("Escape")
        assert not page.page.locator("#help").is_visible()

        keys.press("/")
        for _ in range(1):
            keys.press("Tab")
        assert focused(page) == "thinking-chip"
        keys.press("Enter")
        assert focused(page) == "thinking-on"
        keys.press("Space")
        assert not page.page.is_checked("#thinking-on")
        keys.press("Space")
        keys.press("Escape")
        assert focused(page) == "thinking-chip"

        keys.press("/") if focused(page) == "composer-text" else page.page.focus("#composer-text")
        keys.type("weather")
        keys.press("Enter")
        page.page.wait_for_selector(".call-answer textarea")
        for _ in range(40):
            keys.press("Shift+Tab")
            if page.page.evaluate("document.activeElement.matches('.call-answer textarea')"):
                break
        keys.type("sunny")
        keys.press("Enter")
        page.page.get_by_text("Sunny.", exact=True).first.wait_for()


def test_a_link_skips_to_the_message_box(browser, server_url):
    with opened(browser, server_url) as page:
        first = page.page.locator("a, button, input, textarea").first
        assert first.get_attribute("class") == "skip"
        first.focus()
        assert first.bounding_box()["y"] >= 0
        page.page.keyboard.press("Enter")
        assert focused(page) == "composer-text"


def test_a_screen_reader_hears_finished_text_once(browser, server_url):
    with opened(browser, server_url) as page:
        page.page.evaluate("""() => {
          window.said = [];
          new MutationObserver(() => {
            const text = document.getElementById('announcer').textContent;
            if (text) window.said.push(text);
          }).observe(document.getElementById('announcer'), {childList: true});
        }""")
        page.script([chunk({"content": word}) for word in ("One ", "two ", "three.")] + [chunk({}, "stop")],
                    (429, {"error": {"message": "full"}}))
        page.ask("count")
        page.page.wait_for_timeout(200)
        assert page.page.evaluate("window.said") == ["Answer: One two three."]
        page.ask("again")
        page.page.wait_for_timeout(200)
        assert page.page.evaluate("window.said.at(-1)").startswith("The server is busy. full")
        # Text that grows is in no live region.
        assert page.page.locator("#messages [aria-live], [aria-live] #messages").count() == 0
        assert page.page.locator("#messages").get_attribute("role") is None


def assert_no_faults(page, where):
    from axe_playwright_python.sync_playwright import Axe

    result = Axe().run(page.page, options={"resultTypes": ["violations"]})
    faults = [f"{where}: {fault['id']} ({fault['impact']}): "
              f"{[one['html'][:120] for one in fault['nodes']]}"
              for fault in result.response["violations"]]
    assert len(result.response["passes"]) > 10 and faults == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(browser, server_url, scheme):
    options = {"color_scheme": scheme, "reduced_motion": "reduce"}
    with opened(browser, server_url, **options) as page:
        page.wait_ready()
        assert_no_faults(page, "empty")
        page.script(content(RICH, usage={"prompt_tokens": 9, "completion_tokens": 9}), CALL,
                    (429, {"error": {"message": "full"}}))
        page.ask("rich")
        page.page.locator(".hljs-keyword").first.wait_for()
        page.page.hover(".message.assistant")
        assert_no_faults(page, "answer")
        page.send("tool")
        page.page.wait_for_selector(".call-answer textarea")
        page.page.locator(".thinking summary").last.click()
        assert_no_faults(page, "tool call")
        page.page.click("#settings-open")
        page.page.fill("#temperature", "9")
        page.page.click("#thinking-chip")
        assert_no_faults(page, "settings")
        page.page.keyboard.press("Escape")
        page.page.keyboard.press("Escape")
        page.page.click(".sidebar .new-chat")
        page.ask("error")
        assert_no_faults(page, "error")
        page.page.click("#help-open")
        assert_no_faults(page, "help")


def background(page):
    return page.page.evaluate("getComputedStyle(document.body).backgroundColor")


def test_colours_follow_the_system_or_the_switch(browser, server_url):
    with opened(browser, server_url, color_scheme="dark") as page:
        dark = background(page)
        page.page.click("#theme")
        light = background(page)
        assert page.page.get_attribute("html", "data-theme") == "light" and light != dark
        page.open()
        assert background(page) == light
        page.page.click("#theme")
        assert background(page) == dark
        page.page.click("#theme")
        assert page.page.get_attribute("html", "data-theme") is None
        page.page.emulate_media(color_scheme="light")
        assert background(page) == light


PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}


def test_a_phone_has_room_for_all(browser, server_url):
    with opened(browser, server_url, **PHONE) as page:
        long_line = "x" * 300
        page.script(content(RICH + f"\n```\n{long_line}\n```\n\n{long_line}\n\n$$" + "x+" * 80 + "y$$"), CALL)
        page.ask("rich " + long_line)
        width = page.page.evaluate("document.documentElement.scrollWidth")
        assert width == 360
        assert page.page.evaluate("document.getElementById('messages').scrollWidth") == 360
        assert not page.page.locator("#sidebar").is_visible()
        page.page.tap("#menu")
        page.page.locator("#conversation-list .open").first.wait_for(state="visible")
        page.page.tap("#conversation-list .open")
        page.page.locator("#sidebar").wait_for(state="hidden")
        page.page.tap("#settings-open")
        box = page.page.locator("#settings").bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] == 360
        page.page.tap("#settings-close")
        page.page.tap("#thinking-chip")
        panel = page.page.locator("#thinking-panel").bounding_box()
        assert panel["x"] >= 0 and panel["x"] + panel["width"] <= 360
        # What fingers press is large enough (WCAG 2.2: 24 pixels).
        small = page.page.evaluate("""() => [...document.querySelectorAll('button')]
          .filter((e) => e.checkVisibility({visibilityProperty: true}))
          .filter((e) => e.getBoundingClientRect().width < 24 || e.getBoundingClientRect().height < 24)
          .map((e) => e.outerHTML.slice(0, 80))""")
        assert small == []
