"""Every request of /api: one table. `openapi` writes it down, and a test compares that with what is served.

A row says path, method, handler, who may ask, what for, and which arguments there are. A row without a role does not
exist: `Role.NOBODY` is written out where somebody without a log-in may ask.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from cometmq.console.answers import Problem, answer, body_of, checked_group, group_of, number, topic_of, word
from cometmq.console.context import STREAMS_MAX, Context
from cometmq.console.guard import Handler, person_of
from cometmq.console.login import COOKIE, SESSION_S
from cometmq.console.messages import lookup
from cometmq.console.messages.query import COMPLETIONS, Query, parse
from cometmq.console.messages.rows import Reader
from cometmq.console.messages.scan import Progress, scan
from cometmq.console.messages.tail import tail
from cometmq.console.options import Role
from cometmq.console.plans.letters import ledger_of
from cometmq.console.plans.store import address_of
from cometmq.console.views import brokers, cluster, groups, letters, stores, topics
from cometmq.errors import CometError

ROWS_DEFAULT: Final = 50
ROWS_MAX: Final = 500
EXPORT_MAX: Final = 100_000
SERIES_MAX: Final = 100


@dataclass(frozen=True)
class Route:
    path: str
    handler: Handler
    needs: Role
    summary: str
    method: str = "GET"
    query: tuple[str, ...] = ()
    stream: bool = False
    changes: bool = False


# Who is here


async def me(context: Context, request: Request) -> Any:
    options = context.options
    person = person_of(context, request)
    return {
        "name": person.name if person is not None else None,
        "role": person.role.name.lower() if person is not None else None,
        "auth": options.auth_kind,
        "read_only": options.read_only,
        "bodies": options.bodies,
        "export": options.export and options.bodies,
        "masks": list(options.masks),
        "namesrv": options.namesrv,
        "completions": list(COMPLETIONS),
        "poll_s": options.poll_s,
        "polls": context.hub.asked,
        "actions": {} if options.read_only else {
            name: person is not None and person.role >= action.needs for name, action in context.plans.actions.items()
        },
    }  # fmt: skip


async def log_in(context: Context, request: Request) -> Any:
    given = await body_of(request)
    texts = [given.get(name, "") for name in ("name", "password", "token")]
    if not all(isinstance(text, str) and len(text) <= 300 for text in texts):
        raise Problem(400, "name, password and token are texts of at most 300 characters")
    person, cookie = await context.logins.enter(address_of(request), *texts)
    response = answer({"name": person.name, "role": person.role.name.lower()})
    is_https = request.url.scheme == "https" or request.headers.get("x-forwarded-proto") == "https"
    response.set_cookie(COOKIE, cookie, max_age=int(SESSION_S), httponly=True, samesite="strict", secure=is_https)
    return response


async def log_out(context: Context, request: Request) -> Any:
    context.logins.leave(request.cookies.get(COOKIE))
    response = answer({"left": True})
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return response


# What pages show


async def overview(context: Context, request: Request) -> Any:
    return await context.hub.snapshot("overview")


async def list_topics(context: Context, request: Request) -> Any:
    return await context.hub.snapshot("topics")


async def one_topic(context: Context, request: Request) -> Any:
    return await context.hub.snapshot(f"topic:{topic_of(request)}")


async def topic_producers(context: Context, request: Request) -> Any:
    return await topics.producers(context, topic_of(request))


async def topic_route(context: Context, request: Request) -> Any:
    return await topics.route(context, topic_of(request))


async def list_groups(context: Context, request: Request) -> Any:
    return await context.hub.snapshot("groups")


async def one_group(context: Context, request: Request) -> Any:
    return await context.hub.snapshot(f"group:{group_of(request)}")


async def group_member(context: Context, request: Request) -> Any:
    stacks = word(request, "stacks", "false") == "true"
    return await groups.member(context, group_of(request), word(request, "client_id", chars_max=500), stacks=stacks)


async def history(context: Context, request: Request) -> Any:
    names = request.query_params.getlist("series")
    if not 1 <= len(names) <= SERIES_MAX or any(len(name) > 300 for name in names):
        raise Problem(400, f"series is given {len(names)} times: 1 to {SERIES_MAX} times is taken")
    day = word(request, "span", "hour") == "day"
    return {name: context.history.points(name, day=day) for name in names}


async def list_brokers(context: Context, request: Request) -> Any:
    return await brokers.rows(context)


async def one_broker(context: Context, request: Request) -> Any:
    return await brokers.figures(context, str(request.path_params["broker"])[:300])


async def broker_settings(context: Context, request: Request) -> Any:
    name = str(request.path_params["broker"])[:300]
    config = await context.admin.broker_config(name)
    return {
        key: f"‹{len(text)} characters›" if cluster.SECRET.search(key) and text else text
        for key, text in config.items()
    }


async def settings(context: Context, request: Request) -> Any:
    return await cluster.settings(context)


async def clients(context: Context, request: Request) -> Any:
    return await context.hub.snapshot("clients")


async def topology(context: Context, request: Request) -> Any:
    return await context.hub.snapshot("topology")


async def waiting(context: Context, request: Request) -> Any:
    return await context.hub.snapshot("waiting")


async def dead_groups(context: Context, request: Request) -> Any:
    return await context.hub.snapshot("letters")


async def dead_letters(context: Context, request: Request) -> Any:
    group = group_of(request)
    cause = word(request, "cause", "", 4000) or None
    sent = await asyncio.to_thread(ledger_of(context).states, group)
    async with context.scans:
        return await letters.one_group(context, group, cause, sent)


async def trace(context: Context, request: Request) -> Any:
    return await cluster.trace_of_key(context, word(request, "key", chars_max=500), Reader(context))


async def pipelines(context: Context, request: Request) -> Any:
    return await asyncio.to_thread(stores.pipelines, context.options.pipelines)


async def lake(context: Context, request: Request) -> Any:
    return await stores.with_gaps(context, await asyncio.to_thread(stores.archives, context.options.lake))


async def audit(context: Context, request: Request) -> Any:
    return context.audit.newest(number(request, "count", 200, 1, 2000))


# Messages


def _query(context: Context, request: Request) -> Query:
    query = parse(word(request, "q", ""), int(time.time() * 1000))
    reader = Reader(context)
    if query.looks_into_body and not query.words and not reader.bodies:
        raise Problem(403, "this console shows no bodies (--no-bodies), so they cannot be searched either")
    if query.key is not None and reader.masks.key:
        raise Problem(403, "keys are masked here, so they cannot be searched")
    return query


async def messages(context: Context, request: Request) -> Any:
    """One step of a scan, or the whole answer of the index."""
    topic, query = topic_of(request), _query(context, request)
    limit = number(request, "limit", ROWS_DEFAULT, 1, ROWS_MAX)
    cursor = request.query_params.get("cursor")
    rows: list[dict[str, Any]] = []
    async with context.scans:
        last = Progress(0, 0, [], None, True)
        async for last in _steps(context, topic, query, cursor, limit):
            rows += last.rows
    return last.content() | {"rows": rows}


async def _steps(context: Context, topic: str, query: Query, cursor: str | None, limit: int) -> AsyncIterator[Progress]:
    reader = Reader(context)
    if query.is_exact:
        found = await lookup.exact(context, topic, query)
        chosen = [
            copy
            for copy in found
            if (not query.tests or query.takes(reader.found(copy)))
            and query.tag in (None, copy.message.tag)
            and (query.from_ms or 0) <= copy.message.stored_ms <= (query.to_ms or 1 << 62)
        ]
        yield Progress(len(found), len(found), [reader.row(copy) for copy in chosen], None, True)
        return
    told: set[str] = set()
    if query.words and cursor is None and not reader.masks.key:
        found = await context.admin.copies(topic, key=query.words[0])  # a key is found at once, however far back
        exact = [copy for copy in found if query.takes(reader.found(copy))]
        if exact:
            yield Progress(0, 0, [reader.row(copy) for copy in reversed(exact)])
        told = {copy.message.offset_id for copy in exact}
    async for progress in scan(context.admin, reader, topic, query, cursor, limit):
        progress.rows = [row for row in progress.rows if row["offset_id"] not in told]
        yield progress


async def message_scan(context: Context, request: Request) -> Any:
    """The same step as events, with progress: a page shows it and may stop it by leaving."""
    topic, query = topic_of(request), _query(context, request)
    limit = number(request, "limit", ROWS_DEFAULT, 1, ROWS_MAX)
    cursor = request.query_params.get("cursor")

    async def events() -> AsyncIterator[bytes]:
        async with context.scans:
            async for progress in _steps(context, topic, query, cursor, limit):
                yield b"event: progress\ndata: " + msgspec.json.encode(progress.content()) + b"\n\n"
        yield b"event: done\ndata: {}\n\n"

    return _stream(context, _telling(events()))


async def message_tail(context: Context, request: Request) -> Any:
    topic, query = topic_of(request), _query(context, request)
    await context.admin.topic_route(topic)
    return _stream(context, _telling(tail(context, Reader(context), topic, query)))


async def one_message(context: Context, request: Request) -> Any:
    copy = await lookup.by_id(context, str(request.path_params["id"])[:60], _topic_word(request))
    forced = request.query_params.get("as") or None
    return await asyncio.to_thread(Reader(context).whole, copy, forced)


async def message_timeline(context: Context, request: Request) -> Any:
    copy = await lookup.by_id(context, str(request.path_params["id"])[:60], _topic_word(request))
    return await lookup.timeline(context, copy)


async def message_body(context: Context, request: Request) -> Any:
    """As a file, never as something that a browser would show."""
    if not (context.options.export and context.options.bodies):
        raise Problem(403, "this console lets nobody download bodies (--no-export, --no-bodies)")
    copy = await lookup.by_id(context, str(request.path_params["id"])[:60], _topic_word(request))
    data = await asyncio.to_thread(Reader(context).download, copy)
    name = quote(f"{copy.message.id}.bin", safe="")
    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{name}"}
    return Response(data, media_type="application/octet-stream", headers=headers)


def _topic_word(request: Request) -> str | None:
    from cometmq.console.answers import checked_topic

    topic = request.query_params.get("topic")
    return checked_topic(topic) if topic else None


async def export(context: Context, request: Request) -> Any:
    """JSON lines of what a search finds; at most 100,000 messages are looked at in each step."""
    if not context.options.export:
        raise Problem(403, "this console exports nothing (--no-export)")
    topic, query = topic_of(request), _query(context, request)
    limit = number(request, "limit", 1000, 1, EXPORT_MAX)
    reader = Reader(context)

    class Exporting(Reader):
        def row(self, copy: Any) -> dict[str, Any]:
            return reader.exported(copy)

    async def lines() -> AsyncIterator[bytes]:
        async with context.scans:
            async for progress in scan(context.admin, Exporting(context), topic, query, None, limit):
                for row in progress.rows:
                    yield msgspec.json.encode(row) + b"\n"

    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(topic, safe='')}.jsonl"}
    return StreamingResponse(lines(), media_type="application/x-ndjson", headers=headers)


# Live and changing


async def events(context: Context, request: Request) -> Any:
    keys = [key for text in request.query_params.getlist("watch") for key in text.split(",") if key]
    context.hub.check(keys)
    for key in keys:
        kind, _, name = key.partition(":")
        if kind in ("lag", "group") and name:
            checked_group(name)
    return _stream(context, context.hub.events(keys, request.headers.get("last-event-id")))


async def make_plan(context: Context, request: Request) -> Any:
    return await context.plans.make(context, request.state.person, await body_of(request))


async def apply_plan(context: Context, request: Request) -> Any:
    plan_id = str(request.path_params["id"])[:100]
    return await context.plans.apply(context, request.state.person, plan_id, address_of(request))


async def openapi(context: Context, request: Request) -> Any:
    from cometmq.console.openapi import document

    return document(ROUTES)


def _stream(context: Context, parts: AsyncIterator[bytes]) -> Response:
    if context.streams >= STREAMS_MAX:
        raise Problem(503, f"{STREAMS_MAX} streams are open already: close a page of this console")

    async def counted() -> AsyncIterator[bytes]:
        context.streams += 1
        closing = asyncio.ensure_future(context.closing.wait())
        try:
            while True:
                coming = asyncio.ensure_future(anext(parts, None))
                try:
                    await asyncio.wait((coming, closing), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    if not coming.done():
                        coming.cancel()
                        await asyncio.gather(coming, return_exceptions=True)
                if coming.cancelled() or (part := coming.result()) is None:
                    return
                yield part
        finally:
            closing.cancel()
            context.streams -= 1
            await parts.aclose()  # type: ignore[attr-defined]

    return StreamingResponse(counted(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


async def _telling(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """A stream that has begun can only tell its error as an event."""
    try:
        async for part in parts:
            yield part
    except (CometError, Problem) as error:
        yield b"event: trouble\ndata: " + msgspec.json.encode({"cause": str(error)}) + b"\n\n"
    finally:
        await parts.aclose()  # type: ignore[attr-defined]


SCAN_WORDS: Final = ("q", "limit", "cursor")
VIEWER: Final = Role.VIEWER
OPERATOR: Final = Role.OPERATOR

ROUTES: Final = (
    Route("/api/me", me, Role.NOBODY, "who is asking, and what this console allows"),
    Route("/api/login", log_in, Role.NOBODY, "open a session by token, or name and password", "POST", changes=True),
    Route("/api/logout", log_out, Role.NOBODY, "close the session", "POST", changes=True),
    Route("/api/openapi.json", openapi, VIEWER, "this description"),
    Route("/api/overview", overview, VIEWER, "name servers, brokers, groups that lag, what is wrong"),
    Route("/api/topics", list_topics, VIEWER, "all topics with kind and queues"),
    Route("/api/topics/{topic}", one_topic, VIEWER, "queues, groups and settings of a topic"),
    Route("/api/topics/{topic}/producers", topic_producers, VIEWER, "producers that are connected"),
    Route("/api/topics/{topic}/route", topic_route, VIEWER, "what name servers tell clients"),
    Route("/api/topics/{topic}/messages", messages, VIEWER, "one step of a search", query=SCAN_WORDS),
    Route("/api/topics/{topic}/scan", message_scan, VIEWER, "the same, with progress", query=SCAN_WORDS, stream=True),
    Route("/api/topics/{topic}/tail", message_tail, VIEWER, "new messages as they come", query=("q",), stream=True),
    Route("/api/topics/{topic}/export", export, VIEWER, "what a search finds, as JSON lines", query=("q", "limit")),
    Route("/api/messages/{id}", one_message, VIEWER, "one message, by either id", query=("topic", "as")),
    Route("/api/messages/{id}/timeline", message_timeline, VIEWER, "what became of it", query=("topic",)),
    Route("/api/messages/{id}/body", message_body, VIEWER, "its body as a file", query=("topic",)),
    Route("/api/groups", list_groups, VIEWER, "all consumer groups"),
    Route("/api/groups/{group}", one_group, VIEWER, "queues, members and lag of a group"),
    Route("/api/groups/{group}/member", group_member, VIEWER, "what a member says", query=("client_id", "stacks")),
    Route("/api/groups/{group}/dlq", dead_letters, VIEWER, "its dead letters by cause", query=("cause",)),
    Route("/api/dlq", dead_groups, VIEWER, "groups with dead letters"),
    Route("/api/waiting", waiting, VIEWER, "timers, delayed and half messages"),
    Route("/api/clients", clients, VIEWER, "connected producers and consumers"),
    Route("/api/topology", topology, VIEWER, "what flows from where to where"),
    Route("/api/brokers", list_brokers, VIEWER, "every broker that is there or was"),
    Route("/api/brokers/{broker}", one_broker, VIEWER, "figures and replication of a broker"),
    Route("/api/brokers/{broker}/settings", broker_settings, VIEWER, "settings of a broker, without secrets"),
    Route("/api/settings", settings, VIEWER, "settings of all brokers side by side"),
    Route("/api/pipelines", pipelines, VIEWER, "Spark pipelines that reported"),
    Route("/api/lake", lake, VIEWER, "archives and their gap to the live topic"),
    Route("/api/trace", trace, VIEWER, "messages of one key over all topics", query=("key",)),
    Route("/api/audit", audit, OPERATOR, "who changed what, newest first", query=("count",)),
    Route("/api/history", history, VIEWER, "values of charts", query=("series", "span")),
    Route("/api/events", events, VIEWER, "live updates as server-sent events", query=("watch",), stream=True),
    Route("/api/plans", make_plan, OPERATOR, "what a change would do", "POST", changes=True),
    Route("/api/plans/{id}/apply", apply_plan, OPERATOR, "do it", "POST", changes=True),
)
