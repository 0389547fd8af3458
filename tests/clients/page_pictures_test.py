"""Pictures in the message box and in the conversation."""

import base64
import json
import struct
import zlib

import pytest

from conftest import ROOT, Server
from page_access_test import PHONE, assert_no_faults
from page_support import content, opened

EXAMPLES = [json.loads(line) for line in (ROOT / "models/nano/examples.jsonl").read_text().splitlines()]


def example(thinking=False):
    """(bytes of the picture, question, answer) of one of the model's own examples."""
    found = next(one for one in EXAMPLES if one["family"] == "image" and one["thinking"] == thinking)
    parts = found["messages"][0]["content"]
    url = next(part["image_url"]["url"] for part in parts if part["type"] == "image_url")
    text = next(part["text"] for part in parts if part["type"] == "text")
    return base64.b64decode(url.split(",")[1]), text, found["completion"]


def png(colour, side=40):
    def part(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))
    rows = b"".join(b"\0" + bytes(colour) * side for _ in range(side))
    return (b"\x89PNG\r\n\x1a\n" + part(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)) +
            part(b"IDAT", zlib.compress(rows)) + part(b"IEND", b""))


RED, BLUE = png((200, 30, 30)), png((30, 60, 200))


@pytest.fixture
def page(browser, server_url):
    with opened(browser, server_url) as opened_page:
        opened_page.settings(temperature=0)
        opened_page.wait_ready()
        yield opened_page


def choose(page, *files):
    """(name, bytes) each, through the button's dialog."""
    with page.page.expect_file_chooser() as chooser:
        page.page.click("#add-picture")
    chooser.value.set_files([{"name": name, "mimeType": "image/png", "buffer": data} for name, data in files])


TRANSFER = """([files, text]) => {
  const transfer = new DataTransfer();
  for (const [name, data] of files) {
    const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
    transfer.items.add(new File([bytes], name, {type: 'image/png'}));
  }
  if (text) transfer.setData('text/plain', text);
  return transfer;
}"""


def transfer(page, *files, text=""):
    return page.page.evaluate_handle(
        TRANSFER, [[[name, base64.b64encode(data).decode()] for name, data in files], text])


def paste(page, *files, text=""):
    page.page.locator("#composer-text").evaluate(
        """(area, data) => area.dispatchEvent(
            new ClipboardEvent('paste', {clipboardData: data, bubbles: true, cancelable: true}))""",
        transfer(page, *files, text=text))


def names(page):
    return page.page.locator(".picture-strip img").evaluate_all("(all) => all.map((one) => one.alt)")


def wait_for_names(page, *expected):
    page.page.locator(f".picture-strip img >> nth={len(expected) - 1}").wait_for()
    assert names(page) == list(expected)


def sent_pictures(body):
    parts = body["messages"][-1]["content"]
    return [base64.b64decode(part["image_url"]["url"].split(",")[1])
            for part in parts if part["type"] == "image_url"]


def test_the_model_answers_about_a_chosen_picture(page):
    data, question, answer = example()
    page.thinking(False)
    choose(page, ("shape.png", data))
    wait_for_names(page, "shape.png")
    page.ask(question)
    assert page.text() == answer
    assert names(page) == []
    shown = page.page.locator(".user-pictures img")
    assert shown.get_attribute("alt") == "shape.png"
    assert shown.evaluate("(image) => image.naturalWidth") > 0
    # It is asked about again, from a stored conversation.
    page.open()
    page.wait_ready()
    page.page.get_by_role("button", name="Ask again").click()
    page.page.get_by_text("2/2").wait_for()
    page.idle()
    assert page.text() == answer


def test_pictures_are_pasted_and_dropped(page):
    page.script(content("Two colours."))
    paste(page, ("image.png", RED))
    wait_for_names(page, "Pasted picture 1")
    assert page.page.evaluate("document.activeElement.id") == "composer-text"
    # Text that has a picture of itself beside it stays text.
    paste(page, ("image.png", RED), text="a table")
    data = transfer(page, ("blue.png", BLUE))
    page.page.locator("#messages").dispatch_event("dragover", {"dataTransfer": data})
    assert page.page.locator("#drop-hint").is_visible()
    page.page.locator("#messages").dispatch_event("drop", {"dataTransfer": data})
    wait_for_names(page, "Pasted picture 1", "blue.png")
    assert not page.page.locator("#drop-hint").is_visible()
    page.ask("Which colours?")
    assert sent_pictures(page.requests[-1]) == [RED, BLUE]
    assert page.requests[-1]["messages"][-1]["content"][-1] == {"type": "text", "text": "Which colours?"}


def test_a_picture_alone_is_a_message(page):
    page.script(content("Red."))
    send = page.page.locator("#send")
    assert send.is_disabled()
    choose(page, ("red.png", RED))
    wait_for_names(page, "red.png")
    send.click()
    page.page.get_by_text("Red.", exact=True).wait_for()
    assert sent_pictures(page.requests[-1]) == [RED] and len(page.requests[-1]["messages"][-1]["content"]) == 1
    assert page.entries() == ["red.png"]


def test_pictures_are_kept_by_editing_and_later_turns(page):
    page.script(content("Answer."))
    choose(page, ("red.png", RED), ("blue.png", BLUE))
    wait_for_names(page, "red.png", "blue.png")
    page.ask("first")
    page.ask("second")
    first = page.requests[-1]["messages"][0]["content"]
    assert [part["type"] for part in first] == ["image_url", "image_url", "text"]
    message = page.page.locator(".message.user").first
    message.hover()
    message.get_by_role("button", name="Edit your message").click()
    page.press("Remove red.png")
    page.page.locator(".edit-text").fill("changed")
    page.page.locator(".edit-text").press("Enter")
    page.page.get_by_text("2/2").wait_for()
    page.idle()
    assert sent_pictures(page.requests[-1]) == [BLUE]
    assert page.page.locator(".user-pictures img").count() == 1
    page.page.get_by_role("button", name="Earlier version").click()
    assert page.page.locator(".user-pictures img").count() == 2


def test_what_cannot_be_sent_is_said(page):
    toast = page.page.locator("#toasts")
    for name, data, words in [
            ("notes.txt", b"Hello", "“notes.txt” is not a PNG, JPEG, WebP or GIF picture."),
            ("cut.png", RED[:40], "“cut.png” is damaged: it cannot be shown."),
            ("empty.png", b"", "“empty.png” is not a PNG"),
            ("large.png", RED + bytes(11 << 20), "“large.png” is larger than 10 MB.")]:
        choose(page, (name, data))
        toast.get_by_text(words).wait_for()
        assert names(page) == []
    choose(page, *[(f"{i}.png", RED) for i in range(9)])
    toast.get_by_text("A message takes 8 pictures; the rest is left out.").wait_for()
    assert len(names(page)) == 8


def test_a_conversation_has_room_for_so_many_bytes(page):
    page.page.evaluate("""async (bytes) => {
      (await import('/modules/pictures.js')).limits.conversation = bytes;
    }""", 2.5 * len(RED))
    page.script(content("Red."))
    for _ in range(2):
        choose(page, ("a.png", RED))
        wait_for_names(page, "a.png")
        page.ask("look")
    choose(page, ("a.png", RED))
    page.page.locator("#toasts").get_by_text("“a.png” is left out: the pictures of one conversation").wait_for()
    assert names(page) == []


def test_pictures_go_by_keyboard_and_ear(page):
    page.page.evaluate("""() => {
      window.said = [];
      new MutationObserver(() => {
        const text = document.getElementById('announcer').textContent;
        if (text) window.said.push(text);
      }).observe(document.getElementById('announcer'), {childList: true});
    }""")
    keys = page.page.keyboard
    page.page.focus("#add-picture")
    with page.page.expect_file_chooser() as chooser:
        page.page.wait_for_timeout(100)  # the browser is only now told to hand its dialog over
        keys.press("Enter")
    chooser.value.set_files([{"name": name, "mimeType": "image/png", "buffer": data}
                             for name, data in (("red.png", RED), ("blue.png", BLUE))])
    wait_for_names(page, "red.png", "blue.png")
    for _ in range(2):
        keys.press("Shift+Tab")
    assert page.page.evaluate("document.activeElement.ariaLabel") == "Remove red.png"
    keys.press("Enter")
    assert page.page.evaluate("document.activeElement.ariaLabel") == "Remove blue.png"
    keys.press("Enter")
    assert page.page.evaluate("document.activeElement.id") == "composer-text"
    page.page.wait_for_timeout(200)
    said = page.page.evaluate("window.said")
    assert said[0] == "Added 2 pictures: red.png, blue.png" and said[-1] == "Removed blue.png"


def test_pictures_survive_export_and_import(page, tmp_path):
    page.script(content("Red."))
    choose(page, ("red.png", RED))
    wait_for_names(page, "red.png")
    page.ask("look")
    with page.page.expect_download() as download:
        page.page.click("#export")
    path = tmp_path / "conversations.json"
    download.value.save_as(path)
    page.page.set_input_files("#import-file", path)
    page.page.get_by_text("Imported 1 conversation.").wait_for()
    page.page.locator("#conversation-list .open").last.click()
    assert page.page.locator(".user-pictures img").count() == 1
    # An address instead of a picture's bytes would be asked of another server.
    text = path.read_text().replace("data:image/png;base64,", "https://example.org/")
    path.write_text(text)
    page.page.set_input_files("#import-file", path)
    page.page.get_by_text("Imported 0 conversations, 1 one damaged and left out.").wait_for()


def test_a_model_that_cannot_see_is_known(browser):
    with Server(model="tests/data/tiny-b") as server, opened(browser, server.url) as page:
        page.wait_ready()
        button = page.page.locator("#add-picture")
        page.page.locator('#add-picture[aria-disabled="true"]').wait_for()
        assert button.get_attribute("aria-label") == "Add pictures. This model cannot see pictures"
        button.click(force=True)  # as a user may, who is told why nothing happens
        page.page.locator("#toasts").get_by_text("This model cannot see pictures.").wait_for()
        paste(page, ("image.png", RED))
        page.page.wait_for_timeout(100)
        assert names(page) == []
        assert_no_faults(page, "a model that cannot see")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_about_pictures(browser, server_url, scheme):
    with opened(browser, server_url, color_scheme=scheme, reduced_motion="reduce") as page:
        page.wait_ready()
        page.script(content("Red."))
        choose(page, ("red.png", RED), ("blue.png", BLUE))
        wait_for_names(page, "red.png", "blue.png")
        assert_no_faults(page, "message box")
        page.ask("Which colours are these?")
        choose(page, ("red.png", RED))
        wait_for_names(page, "red.png")
        assert_no_faults(page, "conversation")
        message = page.page.locator(".message.user").first
        message.hover()
        message.get_by_role("button", name="Edit your message").click()
        assert_no_faults(page, "editing")


def test_a_phone_has_room_for_pictures(browser, server_url):
    with opened(browser, server_url, **PHONE) as page:
        page.wait_ready()
        page.script(content("Many."))
        choose(page, *[(f"{i}.png", png((30 * i, 90, 200), 400)) for i in range(8)])
        wait_for_names(page, *[f"{i}.png" for i in range(8)])
        assert page.page.evaluate("document.documentElement.scrollWidth") == 360
        small = page.page.evaluate("""() => [...document.querySelectorAll('.picture-strip button, #add-picture')]
          .filter((e) => e.getBoundingClientRect().width < 24 || e.getBoundingClientRect().height < 24).length""")
        assert small == 0
        page.ask("look")
        assert page.page.evaluate("document.getElementById('messages').scrollWidth") == 360
