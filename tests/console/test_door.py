"""Nobody gets in: an outsider tries every route without a log-in, as a viewer, from a foreign page, by another name.

The list of routes is the table that the application is made of, so a new route is tried without anybody's doing.
"""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cometmq.cli import console as command
from cometmq.console.login import ATTEMPTS_MAX, Users
from cometmq.console.options import Options, Role
from cometmq.console.routes import ROUTES, Route
from cometmq.errors import ConfigError
from cometmq.testing import Cluster
from tests.support.asking import CHANGE, ask, ask_whole, do, get
from tests.support.browser import console, opened

EVIL = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"


def tried(route: Route) -> str:
    words = {"topic": "orders", "group": "billing", "id": "0" * 32, "broker": "broker-a"}
    path = route.path.format(**words)
    return path + ("?watch=groups" if path.endswith("/events") else "?key=a" if path.endswith("/trace") else "")


def paths() -> Iterator[tuple[Route, str]]:
    for route in ROUTES:
        yield route, tried(route)


async def log_in(address: str, **given: str) -> dict[str, str]:
    status, text, headers = await ask_whole(address, "/api/login", given)
    assert status == 200, text
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    return {**CHANGE, "Cookie": cookie.partition(";")[0]}


def users(folder: Path) -> Path:
    file = folder / "users.json"
    known = Users(file)
    for role in ("viewer", "operator", "admin"):
        known.put(f"a-{role}", role, f"password-{role}")
    return file


@pytest.mark.mission("CO-14")
@pytest.mark.parametrize("auth", ["token", "users", "header"])
async def test_without_a_log_in_no_route_says_anything(auth: str, tmp_path: Path) -> None:
    given: dict[str, Any] = {"auth": auth}
    if auth == "users":
        given["auth"] = f"users:{users(tmp_path)}"
    if auth == "header":
        given = {"auth": "header:X-Forwarded-User", "trust": ("10.9.8.0/24",)}
    async with Cluster(topics=["orders"]) as cluster, console(cluster.namesrv, **given) as address:
        pretended = {"X-Forwarded-User": "root", "X-Forwarded-Role": "admin", "X-Forwarded-For": "10.9.8.7"}
        for route, path in paths():
            if route.needs is Role.NOBODY:
                continue
            content: dict[str, str] | None = {} if route.changes else None
            for more in ({}, {"Authorization": "Bearer wrong"}, {"Cookie": "cometmq_console=wrong"}, pretended):
                status, said = await ask(address, path, content, headers={**CHANGE, **more}, method=route.method)
                assert status == 401, (path, more, said)
                assert "orders" not in json.dumps(said)
        status, me = await ask(address, "/api/me")
        assert (status, me["role"], any(me["actions"].values())) == (200, None, False)


@pytest.mark.mission("CO-14")
async def test_a_viewer_sees_and_changes_nothing_and_an_operator_deletes_nothing(tmp_path: Path) -> None:
    async with (
        Cluster(topics=["orders"]) as cluster,
        cluster.client() as client,
        client.admin() as admin,
        console(cluster.namesrv, auth=f"users:{users(tmp_path)}") as address,
    ):
        viewer = await log_in(address, name="a-viewer", password="password-viewer")
        for route, path in paths():
            if route.needs > Role.VIEWER:
                content: dict[str, str] | None = {} if route.changes else None
                status, _ = await ask(address, path, content, headers=viewer, method=route.method)
                assert status == 403, path
        assert (await ask(address, "/api/topics", headers=viewer))[0] == 200
        operator = await log_in(address, name="a-operator", password="password-operator")
        for action in ("topic.delete", "topic.alter", "group.delete", "group.alter", "broker.setting", "half.end"):
            given = {"action": action, "topic": "orders", "group": "billing"}
            assert (await ask(address, "/api/plans", given, headers=operator))[0] == 403, action
        boss = await log_in(address, name="a-admin", password="password-admin")
        status, made = await ask(address, "/api/plans", {"action": "topic.delete", "topic": "orders"}, headers=boss)
        assert status == 200
        for other in (operator, viewer):
            status, _ = await ask(address, f"/api/plans/{made['id']}/apply", {}, headers=other)
            assert status in (403, 404), "somebody else's plan"
        assert "orders" in await admin.topics()
        Users(tmp_path / "users.json").remove("a-viewer")
        assert (await ask(address, "/api/topics", headers=viewer))[0] == 401, "a user who was removed is out at once"


@pytest.mark.mission("CO-14")
async def test_changes_from_a_foreign_page_and_other_names_are_refused() -> None:
    async with Cluster(topics=["orders"]) as cluster, console(cluster.namesrv) as address:
        plan = {"action": "topic.create", "topic": "stolen"}
        json_only = {"Content-Type": "application/json"}
        foreign: list[dict[str, str]] = [
            json_only,
            {**CHANGE, "Origin": "http://evil.example"},
            {**CHANGE, "Origin": "null"},
            {**CHANGE, "Sec-Fetch-Site": "cross-site"},
        ]
        for headers in foreign:
            assert (await ask(address, "/api/plans", plan, headers=headers))[0] == 403, headers
        for content_type in ("text/plain", "application/x-www-form-urlencoded"):
            status, _ = await ask(address, "/api/plans", plan, headers={**CHANGE, "Content-Type": content_type})
            assert status == 415
        for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example"):
            assert (await ask(address, "/api/topics", headers={"Host": host}))[0] == 421, host
        assert (await ask(address, "/api/plans", plan, headers={**CHANGE, "Origin": address.rstrip("/")}))[0] == 200


@pytest.mark.mission("CO-14")
async def test_a_foreign_page_in_the_browser_can_neither_read_nor_change(chromium: str) -> None:
    async with Cluster(topics=["orders"]) as cluster, console(cluster.namesrv) as address:
        async with opened(chromium, "about:blank", expected=("CORS", "Failed to load", "ERR_", "refused")) as page:
            await page.route(
                "http://evil.test/", lambda route: route.fulfill(body="<p>hello", content_type="text/html")
            )
            await page.goto("http://evil.test/")
            outcome = await page.evaluate(
                """async (address) => {
                  const headers = {"Content-Type": "application/json", "X-CometMQ-Console": "1"};
                  const body = '{"action": "topic.create", "topic": "stolen"}';
                  const found = [];
                  for (const [path, init] of [["api/topics", {}], ["api/plans", { method: "POST", body, headers }]]) {
                    try { found.push(await (await fetch(address + path, init)).text()); }
                    catch { found.push("refused"); }
                  }
                  return found;
                }""",
                address,
            )
            assert outcome == ["refused", "refused"]
        assert "stolen" not in json.dumps(await get(address, "/api/topics"))


@pytest.mark.mission("CO-14")
async def test_a_read_only_console_has_no_route_that_changes() -> None:
    async with Cluster(topics=["orders"]) as cluster, console(cluster.namesrv, read_only=True) as address:
        for path in ("/api/plans", "/api/plans/a/apply"):
            assert (await ask(address, path, {}))[0] == 404
        assert (await get(address, "/api/me"))["actions"] == {}


@pytest.mark.mission("CO-14")
async def test_scripts_in_bodies_keys_tags_properties_and_names_stay_text(chromium: str) -> None:
    async with Cluster(topics=["orders"]) as cluster, cluster.client() as client, client.admin() as admin:
        async with client.producer("pg") as producer:
            await producer.send(
                "orders", EVIL.encode(), keys=["<b>key</b>"], tag="<i>tag</i>", properties={"<u>p": EVIL}
            )
            await producer.send("orders", json.dumps({EVIL: EVIL}).encode(), keys=["json"], properties={"error": EVIL})
        (copy,) = await admin.copies("orders", key="<b>key</b>")
        (other,) = await admin.copies("orders", key="json")
        async with console(cluster.namesrv) as address, opened(chromium, address) as page:
            for path, shown in (
                ("topics/orders/messages", EVIL),
                (f"messages/{copy.message.id}?topic=orders", EVIL),
                (f"messages/{other.message.id}?topic=orders", "owned"),
                ("trace?key=%3Cb%3Ekey%3C%2Fb%3E", EVIL),
                ("topics/orders/messages?q=%3Cscript%3E", EVIL),
            ):
                await page.goto(address + path)
                await page.get_by_text(shown).first.wait_for()
                assert "owned" not in await page.title()
                assert await page.locator("main script, main img, main b b, main i i, main u").count() == 0
            _, _, headers = await ask_whole(address, f"/api/messages/{copy.message.id}/body?topic=orders")
            assert headers["content-type"] == "application/octet-stream"
            assert headers["content-disposition"].startswith("attachment")
            assert headers["x-content-type-options"] == "nosniff"
        assert "'unsafe" not in headers["content-security-policy"]


@pytest.mark.mission("CO-14")
async def test_what_is_masked_is_in_no_answer_and_cannot_be_searched() -> None:
    secret, token = "4111-1111", "tok-777"
    masks = ("json.card", "prop.token", "json.orders.card")
    async with Cluster(topics=["orders"]) as cluster, cluster.client() as client, client.admin() as admin:
        async with client.producer("pg") as producer:
            bodies = [
                json.dumps({"card": secret, "orders": [{"card": secret}]}).encode(),
                b'{"card": "4111-1111", broken',
                b"\x82\xa4card\xa94111-1111\xa1a\x01",
            ]
            for number, body in enumerate(bodies):
                await producer.send("orders", body, keys=[f"k{number}"], properties={"token": token})
        async with console(cluster.namesrv, masks=masks) as address:
            for number in range(3):
                (copy,) = await admin.copies("orders", key=f"k{number}")
                own = f"/api/messages/{copy.message.id}"
                asked = [f"{own}?topic=orders{form}" for form in ("", "&as=hex", "&as=text", "&as=json", "&as=msgpack")]
                asked += [f"{own}/body?topic=orders", f"{own}/timeline?topic=orders", f"/api/trace?key=k{number}"]
                asked += ["/api/topics/orders/messages", "/api/topics/orders/export"]
                for path in asked:
                    status, text, _ = await ask_whole(address, path)
                    assert status == 200, (path, text)
                    assert secret not in text, path
                    assert secret.encode().hex(" ") not in text, path
                    assert token not in text, path
            for query in (secret, f"body:{secret}", f"json.card={secret}", f"prop.token:{token}"):
                assert (await get(address, f"/api/topics/orders/messages?q={query}"))["rows"] == []


@pytest.mark.mission("CO-14")
async def test_without_bodies_none_is_shown_searched_or_downloaded() -> None:
    async with Cluster(topics=["orders"]) as cluster, cluster.client() as client, client.admin() as admin:
        async with client.producer("pg") as producer:
            await producer.send("orders", b"the secret", keys=["k"])
        (copy,) = await admin.copies("orders", key="k")
        async with console(cluster.namesrv, bodies=False) as address:
            own = f"/api/messages/{copy.message.id}"
            for path in (
                "/api/topics/orders/messages",
                f"{own}?topic=orders",
                "/api/topics/orders/export",
                "/api/trace?key=k",
            ):
                _, text, _ = await ask_whole(address, path)
                assert "secret" not in text, path
            assert (await ask(address, f"{own}/body?topic=orders"))[0] == 403
            assert (await ask(address, "/api/topics/orders/messages?q=body:secret"))[0] == 403
            assert (await get(address, "/api/topics/orders/messages?q=secret"))["rows"] == []


@pytest.mark.mission("CO-14")
def test_listening_for_everybody_without_a_log_in_is_refused_with_the_cure() -> None:
    for host in ("0.0.0.0", "::", "192.0.2.7"):
        with pytest.raises(ConfigError, match="--auth"):
            Options("127.0.0.1:9876", host=host)
    Options("127.0.0.1:9876", host="0.0.0.0", auth="token")
    with pytest.raises(ConfigError, match="--trust"):
        Options("127.0.0.1:9876", auth="header:X-Forwarded-User")
    assert command.main(["--host", "0.0.0.0", "--namesrv", "127.0.0.1:9"]) != 0


@pytest.mark.mission("CO-14")
async def test_guesses_are_slowed_down_and_requests_are_bounded(tmp_path: Path) -> None:
    async with Cluster(topics=["orders"]) as cluster, console(cluster.namesrv, auth="token", token="right") as address:
        port = int(address.partition("?")[0].rstrip("/").rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = "POST /api/login HTTP/1.1\r\nHost: 127.0.0.1\r\nX-CometMQ-Console: 1\r\nContent-Length: 2000000\r\n\r\n"
        writer.write(head.encode())
        assert b" 413 " in await reader.readline(), "refused before it is sent"
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)
        for number in range(ATTEMPTS_MAX):
            assert (await ask(address, "/api/login", {"token": f"guess {number}"}))[0] == 401
        status, said = await ask(address, "/api/login", {"token": "right"})
        assert (status, "wait a minute" in said["error"]) == (429, True)


@pytest.mark.mission("CO-14")
async def test_the_printed_link_logs_in_once_and_leaves_no_token_in_the_address(chromium: str) -> None:
    async with Cluster(topics=["orders"]) as cluster, console(cluster.namesrv, auth="token", token="right") as address:
        assert address.endswith("?token=right")
        async with opened(chromium, address) as page:
            await page.get_by_role("heading", name="Overview").wait_for()
            assert "token" not in page.url
        async with opened(chromium, address.partition("?")[0]) as page:
            await page.get_by_label("Token").fill("right")
            await page.get_by_role("button", name="Log in").click()
            await page.get_by_role("heading", name="Overview").wait_for()


async def test_a_proxy_that_is_trusted_says_who_it_is() -> None:
    given = {"auth": "header:X-Forwarded-User", "trust": ("127.0.0.0/8",)}
    async with Cluster() as cluster, console(cluster.namesrv, **given) as address:
        viewer = {"X-Forwarded-User": "ada"}
        assert (await ask(address, "/api/topics", headers=viewer))[0] == 200
        assert (await ask(address, "/api/plans", {}, headers={**CHANGE, **viewer}))[0] == 403
        boss = {**CHANGE, **viewer, "X-Forwarded-Role": "admin"}
        plan = {"action": "topic.create", "topic": "by-proxy"}
        assert (await ask(address, "/api/plans", plan, headers=boss))[0] == 200


async def test_no_file_outside_the_pages_is_served() -> None:
    async with Cluster() as cluster, console(cluster.namesrv) as address:
        for path in (
            "/static/../routes.py",
            "/static/%2e%2e/routes.py",
            "/static/..%2froutes.py",
            "/static//etc/passwd",
        ):
            status, text, _ = await ask_whole(address, path)
            assert status == 404 or "<!doctype html>" in text, path
            assert "def " not in text
        assert (await do(address, "topic.create", topic="fine"))["result"] == "done"
