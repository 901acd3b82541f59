"""`cometmq dlq`: what a group gave up on, and giving it another chance.

    cometmq dlq list                        groups that have dead letters
    cometmq dlq list billing                its dead letters, and why each died
    cometmq dlq replay billing --yes        let the group have them once more; what came of each is a line
    cometmq dlq replay billing --id ID --rate 50 --yes
    cometmq dlq replay billing --to-origin --yes    as new messages, for every group of the topics they came from

Dead letters stay where they are until they expire. To its own group a letter is replayed once, under its old id; to
other places, replaying twice sends twice. Body, tag, keys and properties of the application are kept.
"""

import argparse
from typing import TYPE_CHECKING, Any, Final

from cometmq.cli.message import decoder, show
from cometmq.cli.shared import messages, output
from cometmq.cli.shared.arguments import Verb, count, run_noun
from cometmq.cli.shared.connect import administration
from cometmq.cli.shared.failures import EXIT_NO
from cometmq.cli.shared.times import time_text
from cometmq.names import DLQ_PREFIX

if TYPE_CHECKING:
    from cometmq.client.admin import Admin
    from cometmq.client.messages import Message



def main(argv: list[str]) -> int:
    return run_noun("dlq", "Dead letters: list, replay.", VERBS, argv)


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group", nargs="?", help="without it: which groups have any")
    parser.add_argument("-n", "--count", type=count, default=100, metavar="N", help="at most; default 100")
    decoder(parser)


async def _list(options: argparse.Namespace) -> None:
    async with administration(options) as admin:
        if options.group is None:
            output.rows(options.output, await _groups(admin), ("group", "messages"))
            return
        found: list[Message[bytes]] = []
        async for message in admin.dead_letters(options.group):
            found.append(message)
            if len(found) >= options.count:
                output.note(f"there may be more than {options.count}: --count N")
                break
    if options.output in ("json", "yaml"):
        show(options, found)
        return
    rows = [_row(letter, options.decode) for letter in found]
    output.rows(options.output, rows, ("id", "tag", "keys", "tries", "died", "cause", "body"), ("origin", "consumer"))


def _row(letter: "Message[bytes]", decode: str) -> dict[str, Any]:
    from cometmq.client.admin import origin_topic

    failure = letter.failure
    return {
        "id": letter.id,
        "tag": letter.tag,
        "keys": list(letter.keys),
        "tries": letter.delivery_count - 1,
        "died": time_text(letter.stored_ms),
        "cause": f"{failure.kind}: {failure.cause}" if failure is not None else None,
        "origin": origin_topic(letter),
        "consumer": failure.consumer if failure is not None else None,
        "body": messages.body_text(letter.body, decode),
    }


async def _groups(admin: "Admin") -> list[dict[str, Any]]:
    topics = [name for name in await admin.topics(system=True) if name.startswith(DLQ_PREFIX)]
    found = []
    for topic in topics:
        messages = sum(bounds.count for bounds in (await admin.topic_stats(topic)).values())
        found.append({"group": topic.removeprefix(DLQ_PREFIX), "messages": messages})
    return found


def _replay_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group")
    parser.add_argument("--id", action="append", metavar="ID", help="only these; repeatable")
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--to-origin", action="store_true", help="to the topic that each was sent to, for all groups")
    place.add_argument("--to", metavar="TOPIC", help="to this topic; default: to the group alone")
    parser.add_argument("--rate", type=count, default=100, metavar="N", help="messages a second; default 100")
    parser.add_argument("--yes", action="store_true", help="do it; without this only the plan is shown")


async def _replay(options: argparse.Namespace) -> int:
    from cometmq.client.admin import origin_topic

    async with administration(options) as admin:
        if not options.yes:
            targets: dict[str, int] = {}
            async for message in admin.dead_letters(options.group):
                if not options.id or {message.id, message.offset_id} & set(options.id):
                    topic = origin_topic(message) if options.to_origin else options.to or f"group {options.group} alone"
                    targets[topic] = targets.get(topic, 0) + 1
            plan = [{"to": topic, "messages": number} for topic, number in targets.items()]
            output.rows(options.output, plan, ("to", "messages"))
            output.note("nothing was sent: add --yes to do it")
            return 0
        sent: list[dict[str, Any]] = []
        replaying = admin.replay_dead_letters(
            options.group, to_origin=options.to_origin, topic=options.to, rate=options.rate, ids=options.id
        )
        async for one in replaying:
            row = {"id": one.id, "topic": one.topic, "new_id": one.new_id, "error": one.error, "skipped": one.skipped}
            sent.append(row)
    output.rows(options.output, sent, ("id", "topic", "new_id", "skipped", "error"))
    failed = sum(row["error"] is not None for row in sent)
    skipped = sum(row["skipped"] for row in sent)
    text = f"; {skipped} had been replayed before" if skipped else ""
    output.note(f"sent {len(sent) - failed - skipped} of {len(sent)} again{text}")
    return EXIT_NO if failed else 0


VERBS: Final = (
    Verb("list", "groups with dead letters, or the dead letters of one", _list, _list_arguments),
    Verb("replay", "send dead letters again", _replay, _replay_arguments),
)
