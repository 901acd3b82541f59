"""The parts without a cluster: the one box, charts' memory, users, the description of the API, vendored files."""

import gzip
import io
import json
from pathlib import Path

import fastavro
import pytest

from cometmq.console import openapi
from cometmq.console.answers import Problem
from cometmq.console.application import STATIC, application
from cometmq.console.history import SERIES_MAX, History
from cometmq.console.login import Users, hashed, matches
from cometmq.console.messages.decode import decode
from cometmq.console.messages.mask import Masks
from cometmq.console.messages.query import Found, parse
from cometmq.console.options import Options, Role
from cometmq.console.routes import ROUTES
from cometmq.console.views.brokers import bytes_of, first_number
from cometmq.console.views.waiting import histogram
from cometmq.errors import ConfigError
from scripts import console_defaults, console_vendor

NOW_MS = 1_800_000_000_000
FIRST_LOAD_BYTES_MAX = 150 * 1024


def test_words_of_the_box_mean_what_its_help_says() -> None:
    query = parse('key:4711 tag:created queue:3 broker:a offset:120 body:"two words" from:-2h to:-5m', NOW_MS)
    assert (query.key, query.tag, query.queue, query.broker, query.offset) == ("4711", "created", 3, "a", 120)
    assert (query.from_ms, query.to_ms) == (NOW_MS - 7_200_000, NOW_MS - 300_000)
    assert query.takes(Found("here are two words", None, (), {}))
    assert not query.takes(Found("two other words", None, (), {}))
    assert parse("C0A8" * 8, NOW_MS).id == "C0A8" * 8
    assert parse("https://a.b/c", NOW_MS).words == ["https://a.b/c"], "a colon alone makes no command"


@pytest.mark.parametrize(
    ("words", "takes"),
    [
        ("json.price>100", True), ("json.price>=150", True), ("json.price<100", False), ("json.price!=150", False),
        ("json.a.0.b:x", True), ("json.a.1.b:x", False), ("json.paid:true", True), ("json.none=1", False),
        ("prop.city:Kiel", True), ("prop.city:kiel", False), ("prop.city", True), ("prop.town", False),
        ("4711", True), ("0A0B0C", False),
        ("KIEL", True), ("missing", False), ("price 4711", True), ("price missing", False),
    ],
)  # fmt: skip
def test_a_test_takes_what_it_says(words: str, takes: bool) -> None:
    value = {"price": 150, "a": [{"b": "x"}], "paid": True}
    properties = {"city": "Kiel", "UNIQ_KEY": "0A0B0C"}
    found = Found(json.dumps(value), value, ("4711",), properties, {"city": "Kiel"})
    assert parse(words, NOW_MS).takes(found) is takes


@pytest.mark.parametrize("words", ["queue:x", "from:yesterday", "tag:", "to:" + "9" * 30, "from:-1h to:-2h", "a " * 30])
def test_words_that_mean_nothing_are_refused_with_an_example(words: str) -> None:
    with pytest.raises(Problem):
        parse(words, NOW_MS)


def test_bytes_of_any_kind_decode_to_something() -> None:
    for first in range(256):
        for body in (bytes([first]), bytes([first]) * 40, bytes([first, 0, 255])):
            found = decode(body)
            assert found.text or found.kind == "empty"
            for forced in ("json", "text", "msgpack", "avro", "protobuf", "hex"):
                assert decode(body, forced=forced).text or forced == "text"


def test_a_small_body_cannot_become_a_large_answer() -> None:
    deep = b"[" * 500 + b"1," * 100_000 + b"1" + b"]" * 500
    assert len(decode(deep).text) < 3 * len(deep)
    out = io.BytesIO()
    fastavro.writer(out, {"type": "bytes"}, [bytes(8 << 20)], codec="deflate")
    body = out.getvalue()
    assert len(body) < 64 << 10
    assert "compressed with deflate" in decode(body).text
    assert decode(gzip.compress(bytes(64 << 20))).kind == "hex"


def test_masks_reach_into_lists_and_hide_what_cannot_be_read() -> None:
    masks = Masks.of(("json.orders.card", "json.*.pin", "prop.token", "key"))
    body = json.dumps({"orders": [{"card": "secret", "n": 1}], "user": {"pin": 1234}}).encode()
    found = masks.decoded(decode(body), body)
    assert found.value == {"orders": [{"card": "‹6 characters›", "n": 1}], "user": {"pin": "‹4 characters›"}}
    assert "secret" not in found.text
    broken = b'{"card": "secret"'
    assert "secret" not in masks.decoded(decode(broken), broken).text
    assert masks.all_properties({"token": "abc", "KEYS": "k1", "city": "Kiel"}) == {
        "token": "‹3 characters›", "KEYS": "‹2 characters›", "city": "Kiel"}  # fmt: skip
    assert masks.keys(("k1",)) == ("‹2 characters›",)


def test_charts_remember_within_their_bounds_and_over_a_restart(tmp_path: Path) -> None:
    history = History(tmp_path)
    for number in range(SERIES_MAX + 10):
        history.add(f"lag:{number}", number)
    assert history.points("lag:0") == [], "those not written for longest are gone"
    history.save()
    again = History(tmp_path)
    assert [value for _, value in again.points(f"lag:{SERIES_MAX}")] == [SERIES_MAX]
    assert (tmp_path / "history.json").stat().st_size < 64 << 20
    (tmp_path / "history.json").write_text("{broken")
    assert History(tmp_path).points("lag:5") == []


def test_a_users_file_keeps_no_password_and_tells_a_wrong_one(tmp_path: Path) -> None:
    file = tmp_path / "users.json"
    users = Users(file)
    users.put("ada", "admin", "correct horse")
    assert "correct horse" not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    assert users.check("ada", "correct horse") is Role.ADMIN
    assert users.check("ada", "wrong horse") is None
    assert users.check("eve", "correct horse") is None
    assert hashed("a") != hashed("a"), "each has its own salt"
    assert not matches("a", "scrypt$30$8$1$AAAA$AAAA"), "a file cannot make us work for minutes"
    for wrong in (("a b", "admin", "long enough"), ("ada", "root", "long enough"), ("ada", "admin", "short")):
        with pytest.raises(ConfigError):
            users.put(*wrong)


def test_the_description_of_the_api_is_that_of_the_routes_that_are_served() -> None:
    saved = json.loads(openapi.FILE.read_text(encoding="utf-8"))
    assert saved == json.loads(openapi.text()), "python -m cometmq.console.openapi writes it anew"
    described = {(path, method.upper()) for path, ways in saved["paths"].items() for method in ways}
    app = application(Options("127.0.0.1:9876"))
    served = {
        (getattr(route, "path", ""), method)
        for route in app.routes
        for method in getattr(route, "methods", ()) or ()
        if method != "HEAD"
        and getattr(route, "path", "").startswith("/api/")
        and "{rest" not in getattr(route, "path", "")
    }
    assert described == served
    assert all(route.changes == (route.method == "POST") for route in ROUTES)


def test_vendored_files_and_defaults_are_what_their_lists_say() -> None:
    kept = json.loads((STATIC / "vendor" / "vendor.json").read_text(encoding="utf-8"))
    assert kept == console_vendor.listed()
    assert {file.name for file in (STATIC / "vendor").iterdir()} == kept.keys() | {"vendor.json"}
    assert console_defaults.FILE.read_text(encoding="utf-8") == console_defaults.text()


def test_the_first_page_loads_little_and_asks_nobody_else() -> None:
    first = ["index.html", "theme.js", "icon.svg", "app.css", "app.js", "lib/core.js", "lib/parts.js",
             "pages/overview.js", "vendor/preact-htm.js", "vendor/uplot.js", "vendor/uplot.css"]  # fmt: skip
    assert sum((STATIC / name).stat().st_size for name in first) <= FIRST_LOAD_BYTES_MAX
    for file in STATIC.rglob("*"):
        if file.suffix in (".js", ".css", ".html") and "vendor" not in file.parts:
            text = file.read_text(encoding="utf-8")
            assert "http://" not in text.replace("http://www.w3.org/2000/svg", ""), file
            assert "https://" not in text, file
            for unsafe in ("innerHTML", "dangerouslySetInnerHTML", "eval(", "new Function", "document.write"):
                assert unsafe not in text, (file, unsafe)


def test_figures_of_brokers_of_any_age_are_read() -> None:
    assert first_number("1.5 2.0 3.0") == 1.5
    assert first_number("") is first_number(" ") is first_number(None) is None, "RocketMQ 4 says nothing at first"
    assert (bytes_of("1.2 KiB"), bytes_of("13 B"), bytes_of("0"), bytes_of(None)) == (1228, 13, 0, None)


def test_a_histogram_has_steps_of_a_round_length_and_loses_nobody() -> None:
    due = [NOW_MS + number * 60_000 for number in range(1, 100)]
    bins = histogram(due, NOW_MS)
    assert sum(it["count"] for it in bins) == 99
    assert len(bins) <= 42
    assert histogram([], NOW_MS) == []
