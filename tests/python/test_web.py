"""The page of `kipp serve` in headless Chromium: against a server whose answers a test has written down, and against
the real one with the demo checkpoint.

`python tests/python/test_web.py PNG` takes the README's picture of it.
"""
import contextlib
import re
import sys
import threading

import pytest
from playwright.sync_api import expect, sync_playwright

from fake_kipp import SEED, TYPES, FakeKipp, content_security_policy, say
from serving import ROOT, Server

CHROMIUM = "/usr/bin/chromium"  # Debian's
DESKTOP = {"width": 1200, "height": 800}
PHONE = {"width": 360, "height": 640}
# Each of them, as markup or as a link, would run or load something.
HOSTILE = """<script>document.title = 'hacked'</script><img src=x onerror="document.title='hacked'">
[click](javascript:document.title='hacked') <a href="javascript:document.title='hacked'">here</a>
<svg onload="document.title='hacked'"><iframe srcdoc="<script>parent.document.title='hacked'</script>">
\x1b[31mred\x1b[0m \x07 `<b>code</b>` **<i>bold</i>** </div></article><style>body{display:none}</style>

```html
<script>document.title = 'hacked'</script>
```"""


@contextlib.contextmanager
def chromium():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


@pytest.fixture
def server():
    with FakeKipp() as fake:
        yield fake


def listen(page):
    """The console must stay silent: what the security policy blocks would be said there."""
    page.complaints = []
    page.on("console", lambda m: page.complaints.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda e: page.complaints.append(str(e)))
    return page


@pytest.fixture(scope="module")
def tab(browser):
    """One for all tests, since another is half of a second's work; what a page stores belongs to its server's port."""
    context = browser.new_context(viewport=DESKTOP)
    context.set_default_timeout(5000)
    yield listen(context.new_page())
    context.close()


@contextlib.contextmanager
def silent(page):
    page.complaints.clear()
    yield page
    assert [c for c in page.complaints if "Failed to load resource" not in c] == []


@contextlib.contextmanager
def fresh_page(browser, url, **options):
    """One that knows nothing of the others."""
    context = browser.new_context(**options)
    page = listen(context.new_page())
    with silent(page):
        page.goto(url)
        yield page
    context.close()


@pytest.fixture
def page(tab, server):
    with silent(tab):
        tab.goto(server.url)
        expect(tab.locator("#model")).to_have_text("kipp-fake")
        yield tab


def ask(page, text):
    page.locator("#text").fill(text)
    page.locator("#text").press("Enter")


def answer(page):
    return page.locator("article.assistant").last


def body(page):
    return answer(page).locator(".body")


def finished(page):
    expect(answer(page)).to_have_attribute("aria-busy", "false")


def look_again(page):
    """What the page asks of the server every two seconds, at once."""
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def test_an_answer_streams_in_and_says_what_it_took(page, server):
    more = threading.Event()
    server.script = lambda body: [("text", "Hel"), ("text", "lo"), ("wait", more), ("text", " you")]
    ask(page, "Hi\nthere")
    expect(page.locator("article.user .body")).to_have_text("Hi\nthere")
    expect(body(page)).to_have_text("Hello")
    expect(answer(page)).to_have_attribute("aria-busy", "true")
    more.set()
    expect(body(page)).to_have_text("Hello you")
    finished(page)
    facts = answer(page).locator(".facts")
    expect(facts).to_contain_text("3 tokens · 123.4 tokens/s · prompt 12, 8 of it from the cache")
    expect(facts).to_contain_text(f"seed {SEED}")
    assert server.requests[0]["messages"] == [{"role": "user", "content": "Hi\nthere"}]
    assert server.requests[0]["stream"] and "seed" not in server.requests[0]
    expect(page.locator("#text")).to_have_value("")
    expect(page.locator("#text")).to_be_focused()


def test_speed_is_shown_while_the_answer_comes(page, server):
    stop = threading.Event()

    def script(body):
        while not stop.is_set():
            yield "pause", 0.01
            yield "text", "x"

    server.script = script
    ask(page, "go")
    expect(answer(page).locator(".facts")).to_have_text(re.compile(r"^\d+ tokens · [\d.]+ tokens/s"))
    stop.set()


def test_what_was_said_before_is_sent_again(page, server):
    ask(page, "one")
    finished(page)
    server.script = say("second")
    ask(page, "two")
    expect(body(page)).to_have_text("second")
    assert [m["content"] for m in server.requests[1]["messages"]] == ["one", "Once upon a time", "two"]


def test_reading_a_prompt_shows_how_far_it_is(page, server):
    more = threading.Event()
    server.script = lambda body: [("progress", 512, 4096), ("wait", more), ("text", "read")]
    ask(page, "long")
    expect(answer(page).locator(".facts")).to_have_text("reading the prompt: 512 of 4,096 tokens")
    expect(answer(page).locator("progress")).to_have_attribute("value", "512")
    more.set()
    expect(body(page)).to_have_text("read")
    expect(answer(page).locator("progress")).to_be_hidden()


def test_reasoning_is_folded_away(page, server):
    server.script = lambda body: [("think", "Let me "), ("think", "see."), ("text", "42")]
    ask(page, "why?")
    expect(body(page)).to_have_text("42")
    thoughts = answer(page).locator(".thoughts")
    expect(thoughts).to_be_hidden()
    answer(page).locator("summary").click()
    expect(thoughts).to_have_text("Let me see.")
    server.script = say("again")
    ask(page, "and?")
    finished(page)
    assert server.requests[1]["messages"][1]["reasoning_content"] == "Let me see."


@pytest.mark.parametrize("how", ["button", "Escape"])
def test_stop_ends_the_stream_and_keeps_what_came(page, server, how):
    server.script = lambda body: [("text", "begun"), ("wait", threading.Event())]
    ask(page, "go on")
    expect(body(page)).to_have_text("begun")
    if how == "button":
        page.get_by_role("button", name="Stop").click()
    else:
        page.keyboard.press("Escape")
    finished(page)
    assert server.gone.wait(5)
    expect(answer(page).locator(".facts")).to_contain_text("stopped")
    expect(page.locator("#text")).to_be_focused()
    server.script = say(" and ended")
    page.get_by_role("button", name="Continue").click()
    expect(body(page)).to_have_text("begun and ended")
    assert server.requests[1]["messages"][-1] == {"role": "assistant", "content": "begun"}


def test_an_answer_cut_by_its_limit_says_so(page, server):
    server.script = lambda body: [("text", "cut"), ("finish", "length")]
    ask(page, "go")
    expect(answer(page).locator(".facts")).to_contain_text("ended at the limit of tokens")
    expect(page.get_by_role("button", name="Continue")).to_be_visible()
    server.script = say("anew")
    page.get_by_role("button", name="Again").click()
    expect(body(page)).to_have_text("anew")
    assert server.requests[1]["messages"] == [{"role": "user", "content": "go"}]


def test_a_reload_keeps_the_conversation_and_clear_ends_it(page, server):
    server.script = lambda body: [("think", "hm"), ("text", "kept"), ("wait", threading.Event())]
    ask(page, "keep this")
    expect(body(page)).to_have_text("kept")
    page.reload()
    expect(page.locator("article.user .body")).to_have_text("keep this")
    expect(body(page)).to_have_text("kept")
    expect(answer(page).locator(".facts")).to_contain_text("stopped")
    assert server.gone.wait(5)
    page.get_by_role("button", name="Clear").click()
    expect(page.locator("article")).to_have_count(0)
    page.get_by_role("button", name="Undo").click()
    expect(body(page)).to_have_text("kept")
    page.get_by_role("button", name="Clear").click()
    page.reload()
    expect(page.locator("#welcome")).to_be_visible()
    expect(page.locator("article")).to_have_count(0)


def test_a_second_tab_does_not_undo_the_first(page, server):
    other = page.context.new_page()
    other.goto(server.url)
    expect(other.locator("#model")).to_have_text("kipp-fake")
    ask(page, "hello")
    finished(page)
    other.goto("about:blank")
    assert "Once upon a time" in page.evaluate("localStorage.getItem('kipp.conversation.chat')")
    other.close()


def test_storage_of_another_shape_does_no_harm(page):
    for stored in ["{", '{"a": 1}', '[null, 3, {"role": "assistant", "content": 7}, {"role": "user", "content": "ok"}]']:
        page.evaluate("s => localStorage.setItem('kipp.conversation.chat', s)", stored)
        page.reload()
        expect(page.locator("#model")).to_have_text("kipp-fake")
        assert page.complaints == []
        expect(page.locator("article")).to_have_count(1 if "ok" in stored else 0)


@pytest.mark.parametrize("refusal, words", [
    ((400, "prompt: expected at most 8192 tokens, the context, found a prompt of 9000 tokens", []), "found a prompt of 9000"),
    ((429, "queue: full", [("Retry-After", "3")]), "queue: full (Worth another try in 3 seconds.)"),
    ((500, "", []), "The server answered 500"),
])
def test_a_refusal_is_told_in_words_beside_a_retry(page, server, refusal, words):
    server.refusal = refusal
    ask(page, "hello")
    error = answer(page).get_by_role("alert")
    expect(error).to_contain_text(words)
    error.get_by_role("button", name="Try again").click()
    expect(body(page)).to_have_text("Once upon a time")
    expect(error).to_be_hidden()
    assert server.requests[0] == server.requests[1]


def test_an_answer_that_breaks_off_is_an_error(page, server):
    server.script = lambda body: [("text", "half"), ("drop",)]
    ask(page, "a")
    expect(answer(page).get_by_role("alert")).to_contain_text("broke off")
    expect(body(page)).to_have_text("half")
    server.script = lambda body: [("text", "half"), ("error", "backend: out of memory")]
    page.get_by_role("button", name="Try again").click()
    expect(answer(page).get_by_role("alert")).to_contain_text("backend: out of memory")


def test_a_server_that_is_gone_and_comes_back(tab):
    page = tab
    with FakeKipp() as first:
        page.goto(first.url)
        expect(page.locator("#model")).to_have_text("kipp-fake")
        port = first.port
    ask(page, "anyone?")
    expect(answer(page).get_by_role("alert")).to_contain_text("connection to the server is gone")
    expect(page.locator("#model")).to_have_attribute("data-state", "lost")
    with FakeKipp(port) as second:
        second.model = "kipp-other"
        look_again(page)
        expect(page.locator("#model")).to_have_text("kipp-other")
        page.get_by_role("button", name="Try again").click()
        expect(body(page)).to_have_text("Once upon a time")
        assert second.requests[0]["model"] == "kipp-other"


def test_a_loading_model_is_waited_for(tab, server):
    page = tab
    server.loading = True
    page.goto(server.url)
    expect(page.locator("#model")).to_have_text("loading the model…")
    expect(page.get_by_role("button", name="Send")).to_be_disabled()
    server.loading = False
    expect(page.locator("#model")).to_have_text("kipp-fake")
    expect(page.get_by_role("button", name="Send")).to_be_enabled()


def test_a_key_is_asked_for_and_forgotten_with_the_tab(browser, tab, server):
    page = tab
    server.key = "sesame"
    page.goto(server.url)
    field = page.get_by_label("This server asks for an API key")
    expect(field).to_be_focused()
    field.fill("wrong")
    field.press("Enter")
    expect(field).to_be_focused()
    field.fill(server.key)
    field.press("Enter")
    expect(page.locator("#model")).to_have_text("kipp-fake")
    expect(field).to_be_hidden()
    ask(page, "hello")
    expect(body(page)).to_have_text("Once upon a time")
    page.reload()
    expect(page.locator("#model")).to_have_text("kipp-fake")
    assert server.key not in page.evaluate("JSON.stringify(localStorage)")
    with fresh_page(browser, server.url) as other:
        expect(other.get_by_label("This server asks for an API key")).to_be_visible()


def test_what_a_model_writes_is_text_and_nothing_else(page, server):
    server.script = say(*re.findall(r"(?s).{1,7}", HOSTILE))
    ask(page, HOSTILE)
    finished(page)
    shown = body(page).inner_text()
    for piece in ["<script>document.title = 'hacked'</script>", '<img src=x onerror="', "[click](javascript:",
                  '<a href="javascript:', "<svg onload=", "<b>code</b>", "<i>bold</i>", "</div></article><style>"]:
        assert piece in shown, piece
    assert "␛[31mred␛[0m ␇" in shown and "\x1b" not in shown
    kinds = page.locator("#log *").evaluate_all("nodes => [...new Set(nodes.map(n => n.localName))].sort()")
    assert set(kinds) <= {"article", "h2", "div", "details", "summary", "p", "code", "strong", "pre", "progress", "span",
                          "button"}, kinds
    assert page.locator("article a, article [onerror], article [onload], article [style]").count() == 0
    page.reload()
    expect(body(page)).to_contain_text("[click](javascript:")
    assert "hacked" not in page.title()


def test_the_browser_itself_refuses_markup(page):
    blocked = page.evaluate("""() => {
      const tries = [() => { document.body.innerHTML = '<b>x</b>'; },
                     () => { document.createElement('script').text = '1'; }];
      return tries.map(f => { try { f(); return 'done'; } catch (e) { return e.name; } });
    }""")
    assert blocked == ["TypeError", "TypeError"]
    assert len(page.complaints) == 2 and all("has been blocked" in c for c in page.complaints)
    page.complaints.clear()


def test_markdown_becomes_elements(page, server):
    server.script = say("# Title\nA **bold** `word`\n\n- one\n- two\n\n```py\nif a < b:\n\n    pass\n```\nend\n\n```\nopen")
    ask(page, "show")
    finished(page)
    assert body(page).evaluate("n => n.innerHTML") == (
        '<p class="heading">Title</p><p>A <strong>bold</strong> <code>word</code></p><p>- one\n- two</p>'
        '<pre tabindex="0"><code>if a &lt; b:\n\n    pass</code></pre><p>end</p>'
        '<pre tabindex="0"><code>open</code></pre>')


def test_settings_are_sent_as_they_stand(page, server):
    page.get_by_role("button", name="Settings").click()
    for label, value in [("System message", "Be brief."), ("Temperature", "0.7"), ("Top p", "0.9"), ("Top k", "30"),
                         ("Min p", "0.05"), ("Max tokens", "64"), ("Seed", "18446744073709551615")]:
        page.get_by_label(label, exact=True).fill(value)
    page.get_by_label("Thinking").select_option("off")
    expect(page.get_by_label("Temperature")).to_have_attribute("placeholder", "0.6")
    ask(page, "hello")
    finished(page)
    sent = server.requests[0]
    assert {k: sent[k] for k in ("temperature", "top_p", "top_k", "min_p", "max_tokens", "seed")} == {
        "temperature": 0.7, "top_p": 0.9, "top_k": 30, "min_p": 0.05, "max_tokens": 64, "seed": 2**64 - 1}
    assert sent["chat_template_kwargs"] == {"enable_thinking": False}
    assert sent["messages"][0] == {"role": "system", "content": "Be brief."}
    page.reload()
    expect(page.get_by_label("Seed")).to_have_value("18446744073709551615")
    page.get_by_label("Temperature").fill("9")
    ask(page, "too hot")
    expect(page.get_by_label("Temperature")).to_be_focused()
    assert len(server.requests) == 1
    page.get_by_role("button", name="Back to defaults").click()
    page.locator("#text").press("Enter")
    finished(page)
    assert set(server.requests[1]) == {"model", "messages", "stream", "stream_options", "return_progress"}


def test_cache_and_load_are_shown(page, server):
    expect(page.locator("#cache-text")).to_have_text("KV cache 30 % in use, 10 % kept")
    page.get_by_role("button", name="Settings").click()
    expect(page.locator("#load-running")).to_have_text("3")
    expect(page.locator("#load-used")).to_have_text("300")
    widths = page.locator("#cache-bar i").evaluate_all("bars => bars.map(b => b.style.width)")
    assert widths == ["30%", "10%"]
    server.blocks = {"free": 1000, "used": 0, "cached": 0}
    look_again(page)
    expect(page.locator("#cache-text")).to_have_text("KV cache 0 % in use, 0 % kept")


def test_a_base_checkpoint_completes_instead(tab, server):
    page = tab
    server.chat = False
    server.script = say(" there", " was", "\n  a <b>boat</b>")
    page.goto(server.url)
    page.get_by_label("Text to continue").fill("Once ")
    page.get_by_role("button", name="Complete").click()
    finished(page)
    expect(body(page).locator("p")).to_have_text("Once  there was\n  a <b>boat</b>", use_inner_text=True)
    sent = server.requests[0]
    assert sent["prompt"] == "Once " and sent["max_tokens"] == 256 and "messages" not in sent
    page.get_by_role("button", name="Settings").click()
    expect(page.get_by_label("System message")).to_be_hidden()
    server.script = lambda body: [("text", "!"), ("finish", "length")]
    ask(page, "More")
    finished(page)
    page.get_by_role("button", name="Continue").click()
    expect(body(page).locator("p")).to_have_text("More!!")
    assert server.requests[2]["prompt"] == "More!"
    page.reload()
    expect(body(page).locator("p")).to_have_text("More!!")


def test_the_keyboard_is_enough(page, server):
    expect(page.locator("#text")).to_be_focused()
    page.keyboard.type("first")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("second")
    page.keyboard.press("Enter")
    finished(page)
    assert server.requests[0]["messages"][0]["content"] == "first\nsecond"
    reached = []
    for _ in range(12):
        page.keyboard.press("Shift+Tab")
        element = page.locator(":focus")
        if element.count() == 0:
            break
        reached.append(element.evaluate("n => n.id || n.textContent"))
        ring = element.evaluate("n => getComputedStyle(n).outlineStyle")
        assert ring != "none", reached[-1]
    assert {"Again", "scroller", "panel-toggle", "clear"} <= set(reached)
    page.locator("#panel-toggle").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("System message")).to_be_focused()
    unnamed = page.locator("button, input, select, textarea").evaluate_all(
        "nodes => nodes.filter(n => !(n.labels?.length || n.ariaLabel || n.textContent.trim())).map(n => n.id)")
    assert unnamed == []
    expect(page.locator("#log")).to_have_role("log")
    expect(page.locator("#status")).to_have_text(re.compile("The answer is complete: 4 tokens"))


def test_a_phone_has_room_for_it(browser, server):
    server.script = say("word " * 300, "`" + "x" * 300 + "`\n\n```\n" + "y" * 300 + "\n```")
    server.model = "a-rather-long-name-of-a-checkpoint-quantized"
    with fresh_page(browser, server.url, viewport=PHONE, has_touch=True, is_mobile=True) as page:
        def fits():
            wide = "[document.documentElement, ...document.querySelectorAll('#scroller, #panel')].map(n => n.scrollWidth)"
            return max(page.evaluate(wide)) <= PHONE["width"]

        expect(page.locator("#model")).to_contain_text("a-rather")
        assert fits()
        ask(page, "z" * 300)
        finished(page)
        assert fits()
        expect(page.locator("#text")).to_be_in_viewport()
        expect(answer(page).locator(".facts")).to_be_in_viewport()
        page.locator("#scroller").evaluate("n => { n.scrollTop = 0; }")
        page.locator("#newest").click()
        expect(answer(page).locator(".facts")).to_be_in_viewport()
        page.get_by_role("button", name="Settings").click()
        assert fits()
        page.keyboard.press("Escape")
        expect(page.locator("#panel")).to_be_hidden()


def test_light_and_dark(browser, server):
    def background(page):
        rgb = re.findall(r"\d+", page.evaluate("getComputedStyle(document.body).backgroundColor"))
        return "dark" if sum(map(int, rgb[:3])) < 200 else "light"

    for system in ["light", "dark"]:
        with fresh_page(browser, server.url, color_scheme=system) as page:
            assert background(page) == system
            page.get_by_role("button", name="Settings").click()
            for chosen, shown in [("light", "light"), ("auto", system), ("dark", "dark")]:
                page.get_by_label("Colours").select_option(chosen)
                assert background(page) == shown
            page.reload()
            assert background(page) == "dark"


@pytest.fixture(scope="module")
def kipp():
    """The real server, with the demo checkpoint."""
    with Server("--access-log", "off") as server:
        yield server
        assert server.stop() == 0


@pytest.fixture
def real_page(browser, kipp):
    with fresh_page(browser, f"http://127.0.0.1:{kipp.port}/", viewport=DESKTOP) as page:
        expect(page.locator("#model")).to_have_text("kipp-demo")
        page.get_by_role("button", name="Settings").click()
        page.get_by_label("Temperature").fill("0")
        page.get_by_label("Max tokens").fill("24")
        yield page


def test_kipp_itself_answers_the_page(real_page):
    page = real_page
    ask(page, "Tell me a story about a lost kite.")
    finished(page)
    facts = answer(page).locator(".facts")
    expect(facts).to_have_text(re.compile(r"^\d+ tokens · [\d.]+ tokens/s · prompt \d+, \d+ of it from the cache · seed \d+"))
    told = body(page).inner_text()
    assert len(told) > 20
    page.reload()
    expect(body(page)).to_have_text(told, use_inner_text=True)
    page.get_by_role("button", name="Again").click()
    finished(page)
    expect(body(page)).to_have_text(told, use_inner_text=True)
    expect(page.locator("#cache-text")).to_have_text(re.compile(r"^KV cache \S+ % in use, \S+ % kept$"))
    expect(page.locator("#load-running")).to_have_text("0")


def test_kipp_itself_stops_when_the_page_does(real_page):
    page = real_page
    # So hot, it finds no end within thousands of tokens.
    for label, value in [("Max tokens", ""), ("Temperature", "2"), ("Top p", "1"), ("Top k", "0"), ("Seed", "3")]:
        page.get_by_label(label, exact=True).fill(value)
    ask(page, "Tell me a story about a boat, and do not stop.")
    expect(body(page)).to_have_text(re.compile(r"\w+ \w+"))
    page.keyboard.press("Escape")
    finished(page)
    expect(answer(page).locator(".facts")).to_contain_text("stopped")
    expect(page.locator("#load-running")).to_have_text("0")


def test_kipp_itself_refuses_in_words(real_page):
    page = real_page
    page.get_by_label("Thinking").select_option("on")
    ask(page, "word " * 9000)
    error = answer(page).get_by_role("alert")
    expect(error).to_contain_text("expected at most")
    expect(error.get_by_role("button", name="Try again")).to_be_visible()


def test_kipp_itself_serves_the_files_as_they_are(kipp):
    web = ROOT / "src" / "server" / "web"
    for file in web.iterdir():
        path = "/" if file.name == "index.html" else f"/{file.name}"
        answer = kipp.ask("GET", path)
        assert (answer.status, answer.body) == (200, file.read_bytes()), path
        assert answer.headers["content-type"] == TYPES[file.suffix]
        assert answer.headers["content-security-policy"] == content_security_policy()
        again = kipp.ask("GET", path, headers={"If-None-Match": answer.headers["etag"]})
        assert (again.status, again.body) == (304, b"")


def take_picture(path):
    # A small cache, so that its bar shows something.
    with Server("--access-log", "off", "--kv-memory", "32MiB") as server, chromium() as browser:
        page = browser.new_page(viewport={"width": 1180, "height": 720}, device_scale_factor=1.5, color_scheme="light")
        page.goto(f"http://127.0.0.1:{server.port}/")
        page.get_by_role("button", name="Settings").click()
        page.get_by_label("Seed").fill("7")
        page.get_by_label("Temperature").fill("0.6")
        page.get_by_label("Max tokens").fill("110")
        for question in ["Tell me a story about a lost kite.", "Tell me a story about an old boat."]:
            ask(page, question)
            finished(page)
        look_again(page)
        expect(page.locator("#load-running")).to_have_text("0")
        page.wait_for_timeout(500)  # the bar moves
        page.screenshot(path=path)


if __name__ == "__main__":
    take_picture(sys.argv[1])
