"""Plans for what waits, and for settings of brokers: recall a timer, end a half message, change a setting."""

from cometmq.console.answers import Arguments
from cometmq.console.context import Context
from cometmq.console.options import Role
from cometmq.console.plans.store import Action, Prepared, Rows
from cometmq.console.views.cluster import SECRET
from cometmq.errors import ConfigError, NotFound


async def recall(context: Context, given: Arguments) -> Prepared:
    message_id = given.text("id", chars_max=60)
    found = await context.admin.waiting_messages()
    waiting = next((it for it in found.messages if message_id in (it.copy.message.id, it.copy.message.offset_id)), None)
    if waiting is None:
        raise NotFound(f"no message with id {message_id} waits: it was delivered, recalled, or never there")
    if not waiting.handle:
        raise ConfigError("only timers can be recalled: a message with a delay level comes when it is due")

    async def apply() -> Rows:
        await context.admin.recall_timer(waiting)
        return [{"id": message_id, "result": "done"}]

    rows: Rows = [{"topic": waiting.topic, "due_ms": waiting.due_ms, "broker": waiting.copy.broker}]
    sentence = f"the message is not delivered to {waiting.topic}; it cannot be brought back"
    columns = ["topic", "due_ms", "broker"]
    return Prepared("Recall a message", sentence, apply, columns, rows, [], {"due": waiting.due_ms})


async def end_half(context: Context, given: Arguments) -> Prepared:
    message_id, commit = given.text("id", chars_max=60), given.flag("commit", False)
    halves = await context.admin.open_halves()
    half = next((it for it in halves if message_id in (it.copy.message.id, it.copy.message.offset_id)), None)
    if half is None:
        raise NotFound(f"no half message with id {message_id} is open: it has ended, or was never there")

    async def apply() -> Rows:
        await context.admin.end_half(half, commit=bool(commit))
        return [{"id": message_id, "result": "done"}]

    word = "committed" if commit else "rolled back"
    rows: Rows = [{"topic": half.topic, "group": half.group, "checks": half.checks}]
    what = f"the message is {word}" + (f": consumers of {half.topic} get it" if commit else ": nobody ever gets it")
    warnings = [f"its producer {half.group} may decide otherwise: what it says later is refused"]
    columns = ["topic", "group", "checks"]
    title = "Commit a half message" if commit else "Roll a half message back"
    return Prepared(title, what, apply, columns, rows, warnings, {"place": half.copy.message.physical_offset})


async def setting(context: Context, given: Arguments) -> Prepared:
    broker, key = given.text("broker", chars_max=300), given.text("key", chars_max=200)
    value = given.text("value", chars_max=4000)
    if SECRET.search(key):
        raise ConfigError(f"{key} is a secret: set it in the broker's file")
    config = await context.admin.broker_config(broker)
    if key not in config:
        raise NotFound(f"broker {broker} has no setting {key}: check the spelling")

    async def apply() -> Rows:
        done = await context.admin.set_broker_config({key: value}, broker=broker)
        now = (await context.admin.broker_config(broker)).get(key)
        return [{"broker": name, "now": now, "result": "done" if now == value else "failed"} for name in done]

    rows: Rows = [{"broker": broker, "setting": key, "now": config[key], "then": value}]
    sentence = f"{key} of {broker} becomes {value!r}" if config[key] != value else f"{key} is {value!r} already"
    columns = ["broker", "setting", "now", "then"]
    nothing = config[key] == value
    return Prepared(f"Change {key}", sentence, apply, columns, rows, [], {key: config[key]}, nothing)


ACTIONS = {
    "timer.recall": Action(Role.OPERATOR, recall, "take back a timer before it is due"),
    "half.end": Action(Role.ADMIN, end_half, "commit a half message or roll it back"),
    "broker.setting": Action(Role.ADMIN, setting, "change a setting of a running broker"),
}
