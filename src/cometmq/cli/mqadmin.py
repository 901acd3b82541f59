"""`cometmq mqadmin NAME ...`: RocketMQ's admin commands by their own names and letters.

    cometmq mqadmin topicStatus -n 127.0.0.1:9876 -t orders      is      cometmq topic describe orders --namesrv ...

Each name is a row: the command it becomes, and where its letters go. A letter goes to an option (`--queues`), or to
the command's own arguments in the order of the row (`1`, `2`, ...). What changes something is done at once, as mqadmin
does. Letters without a row are refused by name: nothing is silently left out.
"""

import sys
from typing import Final

from cometmq.cli.shared.failures import EXIT_USAGE

# Name -> (command, letter -> place). A place: number of an argument, an option, "" for "has no meaning here".
Row = tuple[str, dict[str, str]]
BROKER: Final = {"b": "--broker", "c": "--cluster"}
ALIASES: Final[dict[str, Row]] = {
    "clusterList": ("cluster list", {"c": "--cluster", "i": "", "m": "", "p": ""}),
    "clusterRT": ("rtt", {"a": "--count", "c": "", "i": "", "m": "", "p": "", "s": ""}),
    "brokerStatus": ("cluster figures", {"b": "1"}),
    "getBrokerConfig": ("config get", {"b": "--broker", "c": "", "k": "1"}),
    "updateBrokerConfig": ("config set --yes", {"b": "--broker", "c": "", "k": "key", "v": "value"}),
    "getNamesrvConfig": ("config get --nameserver", {}),
    "updateNamesrvConfig": ("config set --nameserver --yes", {"k": "key", "v": "value"}),
    "wipeWritePerm": ("cluster close-writes --yes", {"b": "1"}),
    "addWritePerm": ("cluster open-writes", {"b": "1"}),
    "cleanExpiredCQ": ("cluster clean expired-queues --yes", BROKER),
    "cleanUnusedTopic": ("cluster clean unused-topics --yes", BROKER),
    "deleteExpiredCommitLog": ("cluster clean expired-files --yes", BROKER),
    "topicList": ("topic list --system", {"c": "--cluster"}),
    "topicRoute": ("topic route", {"t": "1", "l": ""}),
    "topicClusterList": ("topic route", {"t": "1"}),
    "topicStatus": ("topic describe", {"t": "1", "c": ""}),
    "updateTopic": ("topic create", {**BROKER, "t": "1", "w": "--queues", "r": "--read-queues", "p": "perm",
                                     "o": "ordered", "a": "attributes", "u": "", "s": ""}),
    "updateTopicPerm": ("topic alter", {**BROKER, "t": "1", "p": "perm"}),
    "deleteTopic": ("topic delete --yes", {"t": "1", "c": "--cluster"}),
    "updateSubGroup": ("group create", {**BROKER, "g": "1", "r": "--retries", "s": "enabled", "d": "broadcast",
                                        "o": "ordered", "q": "", "m": "", "i": "", "w": "", "a": ""}),
    "deleteSubGroup": ("group delete --yes", {**BROKER, "g": "1", "r": "remove offsets"}),
    "consumerProgress": ("group lag", {"g": "1", "t": "--topic", "s": "", "c": ""}),
    "consumerConnection": ("group describe", {"g": "1", "b": ""}),
    "producerConnection": ("group producers", {"g": "1", "t": ""}),
    "consumerStatus": ("group describe", {"g": "1", "i": "", "s": "", "b": ""}),
    "resetOffsetByTime": ("group seek --yes", {"g": "1", "t": "2", "s": "--to", "f": "", "b": "", "q": "", "o": ""}),
    "skipAccumulatedMessage": ("group seek --yes --to latest", {"g": "1", "t": "2", "f": ""}),
    "setConsumeMode": ("group mode", {"g": "1", "t": "2", "m": "mode", "q": "--share", "b": "", "c": ""}),
    "cloneGroupOffset": ("group clone --yes", {"s": "1", "d": "2", "t": "--topic", "o": ""}),
    "queryMsgById": ("message get", {"i": "1", "t": "--topic", "c": "", "g": "", "d": "", "s": "", "u": "", "f": ""}),
    "queryMsgByUniqueKey": ("message get", {"i": "1", "t": "--topic", "c": "", "g": "", "d": "", "a": "", "s": "",
                                            "e": ""}),
    "queryMsgByKey": ("message find", {"t": "1", "k": "--key", "m": "--count", "b": "--from", "e": "--to", "c": ""}),
    "queryMsgTraceById": ("message trace", {"i": "1", "t": "--trace-topic", "b": "", "e": "", "c": ""}),
    "printMsg": ("tail --from earliest --no-follow", {"t": "1", "s": "--tag", "c": "", "d": "", "b": "--from",
                                                      "l": ""}),
    "consumeMessage": ("tail --from earliest --no-follow", {"t": "1", "i": "--queue", "c": "--count", "o": "--from",
                                                            "g": "", "b": "", "s": "--from"}),
    "createUser": ("user create", {**BROKER, "u": "1", "p": "--password", "t": "user type"}),
    "updateUser": ("user passwd --yes", {**BROKER, "u": "1", "p": "--password", "s": "user status"}),
    "deleteUser": ("user remove --yes", {**BROKER, "u": "1"}),
    "getUser": ("user list", {"u": "1", "c": "--cluster", "b": ""}),
    "listUser": ("user list", {"f": "1", "c": "--cluster", "b": ""}),
    "createAcl": ("acl grant --yes", {**BROKER, "s": "1", "r": "2", "a": "3", "i": "sources", "d": "decision"}),
    "updateAcl": ("acl grant --yes", {**BROKER, "s": "1", "r": "2", "a": "3", "i": "sources", "d": "decision"}),
    "deleteAcl": ("acl revoke --yes", {**BROKER, "s": "1", "r": "2"}),
    "getAcl": ("acl list", {"s": "1", "c": "--cluster", "b": ""}),
    "listAcl": ("acl list", {"s": "1", "r": "--resource", "c": "--cluster", "b": ""}),
    "sendMessage": ("send", {"t": "1", "p": "--body", "k": "--key", "c": "--tag", "b": "", "i": "", "m": ""}),
}  # fmt: skip
WORDS: Final = {
    "namesrvAddr": "n", "topic": "t", "topicName": "t", "clusterName": "c", "brokerAddr": "b", "brokerName": "b",
    "groupName": "g", "msgId": "i", "msgKey": "k", "writeQueueNums": "w", "readQueueNums": "r", "perm": "p",
    "order": "o", "attributes": "a", "timestamp": "s", "body": "p", "key": "k", "value": "v", "srcGroup": "s",
    "destGroup": "d", "help": "h", "username": "u", "password": "p", "userType": "t", "userStatus": "s", "filter": "f",
    "subject": "s", "resources": "r", "actions": "a", "sourceIp": "i", "decision": "d",
}  # fmt: skip
SUBJECT: Final = "User:"
HIDDEN: Final = "--password=***"
PERMISSIONS: Final = {"2": "w", "4": "r", "6": "rw"}


def main(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(overview(), file=sys.stderr if not argv else sys.stdout)
        return 0 if argv else EXIT_USAGE
    name, rest = argv[0], argv[1:]
    if name not in ALIASES:
        print(f"cometmq mqadmin: unknown name {name!r}; cometmq mqadmin --help lists all", file=sys.stderr)
        return EXIT_USAGE
    try:
        command = translate(name, rest)
    except ValueError as error:
        print(f"cometmq mqadmin {name}: {error}", file=sys.stderr)
        return EXIT_USAGE
    shown = [HIDDEN if word.startswith(HIDDEN[:-3]) else word for word in command]
    print(f"cometmq {' '.join(shown)}", file=sys.stderr)
    from cometmq.cli.main import main as run

    return run(command)


def overview() -> str:
    width = max(map(len, ALIASES))
    lines = [f"  {name:<{width}}  cometmq {command.replace(' --yes', '')}" for name, (command, _) in ALIASES.items()]
    return "\n".join(["usage: cometmq mqadmin NAME [-n HOST:PORT] [LETTERS]", "", *lines])


def translate(name: str, rest: list[str]) -> list[str]:
    """Our command for one of mqadmin's. ValueError says which letter cannot be carried over."""
    command, places = ALIASES[name]
    given = _letters(rest)
    if "h" in given:
        return [*command.partition(" -")[0].split()[:2], "--help"]
    arguments: dict[int, str] = {}
    options: list[str] = []
    if "n" in given:
        options += ["--namesrv", given.pop("n")]
    for letter, text in given.items():
        place = places.get(letter)
        if place is None:
            raise ValueError(f"-{letter} is not known here; known: -n {' '.join('-' + one for one in sorted(places))}")
        if place.isdecimal():
            arguments[int(place)] = text.removeprefix(SUBJECT)
        elif place.startswith("--"):
            options.append(f"{place}={_moment(text)}")
        else:
            options += _special(place, text, given)
    if name == "consumerProgress" and 1 not in arguments:
        return ["group", "list", "-o", "wide", *options]
    if name == "deleteSubGroup" and given.get("r", "false") != "true":
        options.append("--keep-offsets")
    if name == "updateUser" and "p" not in given:
        verb = "enable" if given.get("s") == "enable" else "disable --yes"
        return ["user", *verb.split(), *arguments.values(), *options]
    if name == "setConsumeMode":
        arguments[3] = given.get("m", "pop").lower()
    return [*command.split(), *[arguments[number] for number in sorted(arguments)], *options]


def _letters(rest: list[str]) -> dict[str, str]:
    """-t orders, --topic orders and --topic=orders; a letter without a value is true."""
    given: dict[str, str] = {}
    words = [part for word in rest for part in (word.split("=", 1) if word.startswith("--") else [word])]
    place = 0
    while place < len(words):
        word = words[place]
        if not word.startswith("-"):
            raise ValueError(f"{word!r} belongs to no letter")
        letter = WORDS.get(word[2:], word[2:]) if word.startswith("--") else word[1:]
        has_value = place + 1 < len(words) and not words[place + 1].startswith("-")
        given[letter] = words[place + 1] if has_value else "true"
        place += 2 if has_value else 1
    return given


def _moment(text: str) -> str:
    """RocketMQ writes 2026-11-15#12:30:00:000; anything else is left as it is."""
    date, hash_sign, clock = text.partition("#")
    parts = clock.split(":")
    return f"{date}T{':'.join(parts[:3])}.{parts[3]}" if hash_sign and len(parts) == 4 else text


def _special(place: str, text: str, given: dict[str, str]) -> list[str]:
    """Letters whose values mqadmin writes in another way."""
    if place == "user type":
        return ["--super"] if text.lower() == "super" else []
    if place == "sources":
        return [f"--from={part}" for part in text.split(",")]
    if place == "decision":
        return ["--deny"] if text.lower() == "deny" else []
    if place == "perm":
        if text not in PERMISSIONS:
            raise ValueError(f"-p {text} is none of 2 (write), 4 (read), 6 (both)")
        return [f"--permissions={PERMISSIONS[text]}"]
    if place == "attributes":
        return [f"--attribute={part.lstrip('+')}" for part in text.split(",")]
    if place == "key":
        return [f"{text}={given.get('v', '')}"]
    if place == "ordered":
        return ["--ordered"] if text == "true" else []
    if place == "enabled":
        return [] if text == "true" else ["--disable"]
    if place == "broadcast":
        return ["--broadcast"] if text == "true" else ["--no-broadcast"]
    return []
