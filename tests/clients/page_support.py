"""Drives the web page as a user does. Nothing is evaluated inside it that its policy would refuse."""

import json
from contextlib import contextmanager

CHAT = "**/v1/chat/completions"


def chunk(delta=None, finish=None, **more):
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return {"object": "chat.completion.chunk", "model": "nano", "choices": choices, **more}


def content(text, **more):
    return [chunk({"content": text}), chunk({}, "stop"), chunk(**more)]


def stream(chunks):
    return "".join(f"data: {json.dumps(one)}\n\n" for one in chunks) + "data: [DONE]\n\n"


class Page:
    def __init__(self, browser, url, **options):
        self.context = browser.new_context(viewport=options.pop("viewport", {"width": 1280, "height": 820}),
                                           **options)
        self.context.set_default_timeout(15000)
        self.page = self.context.new_page()
        self.url = url
        self.requests = []
        self.faults = []  # uncaught errors, and what the policy refused
        self.strangers = []  # requests to any other server
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("console", self._on_console)
        self.page.on("request", self._on_request)
        self.open()

    def _on_console(self, message):
        if "Content Security Policy" in message.text or "Content-Security-Policy" in message.text:
            self.faults.append(message.text)

    def _on_request(self, request):
        if not request.url.startswith((self.url, "data:", "blob:")):
            self.strangers.append(request.url)

    def open(self):
        self.page.goto(self.url + "/")
        self.page.wait_for_selector("html[data-ready]")

    def wait_ready(self):
        self.page.wait_for_selector('#server[data-state="ready"]')

    def script(self, *answers):
        """Answers the next requests with these chunks, or (status, JSON), instead of the server."""
        waiting = list(answers)

        def handle(route):
            self.requests.append(json.loads(route.request.post_data))
            answer = waiting.pop(0) if len(waiting) > 1 else waiting[0]
            if isinstance(answer, tuple):
                status, body, *headers = answer
                route.fulfill(status=status, json=body, headers=headers[0] if headers else {})
            else:
                route.fulfill(status=200, content_type="text/event-stream", body=stream(answer))

        self.page.unroute(CHAT)
        self.page.route(CHAT, handle)

    def change_requests(self, change):
        """Lets requests through to the server, changed by `change(body)`."""
        def handle(route):
            body = json.loads(route.request.post_data)
            change(body)
            self.requests.append(body)
            route.continue_(post_data=json.dumps(body))

        self.page.unroute(CHAT)
        self.page.route(CHAT, handle)

    def send(self, text):
        self.wait_ready()
        self.page.fill("#composer-text", text)
        self.page.press("#composer-text", "Enter")

    def ask(self, text):
        count = self.answers().count()
        self.send(text)
        self.page.wait_for_selector(f".message.assistant >> nth={count}")
        self.idle()
        return self.answers().last

    def idle(self):
        self.page.wait_for_selector(".streaming", state="detached")

    def answers(self):
        return self.page.locator(".message.assistant")

    def text(self):
        """What the last answer says."""
        return self.answers().last.locator(".markdown").inner_text().strip()

    def thinking(self, on):
        self.page.click("#thinking-chip")
        self.page.set_checked("#thinking-on", on)
        self.page.keyboard.press("Escape")

    def settings(self, **values):
        self.page.click("#settings-open")
        for name, value in values.items():
            self.page.fill(f"#{name}", str(value))
        self.page.keyboard.press("Escape")

    def press(self, label):
        self.page.get_by_role("button", name=label, exact=True).click()

    def entries(self):
        return self.page.locator("#conversation-list .entry-title").all_inner_texts()

    def close(self):
        self.context.close()
        assert self.faults == []
        assert self.strangers == []


@contextmanager
def opened(browser, url, **options):
    page = Page(browser, url, **options)
    yield page
    page.close()
