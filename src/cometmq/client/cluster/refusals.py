"""An answer that is a refusal, as an exception; one about who asks says what would help.

    User:alice has no permission to access Topic:orders from 10.1.2.3, no matched policies.
    -> AccessDenied: user alice, resource Topic:orders, actions Pub; ...: cometmq acl grant alice Topic:orders Pub

Brokers name the user and the resource, but not the action: that is what the request needs (auth/needs.py).
"""

import re
from typing import Final

from cometmq.auth.signature import ACCESS_KEY
from cometmq.errors import AccessDenied, BrokerError
from cometmq.wire.codes import Response
from cometmq.wire.command import Command
from cometmq.wire.command import request as new_request

_NOT_PERMITTED: Final = re.compile(
    r"User:(?P<user>.+?) has no permission to access (?P<resource>.+) from (?P<source>\S*), (?P<cause>.+)", re.DOTALL
)
_DISABLED: Final = re.compile(r"User:(?P<user>.+) is disabled\.", re.DOTALL)
_UNKNOWN: Final = re.compile(r"User:(?P<user>.+) is not found\.", re.DOTALL)
_NO_NAME: Final = "username cannot be null."
_WRONG_SIGNATURE: Final = "check signature failed."
# What our name servers call themselves; there are no policies to grant there.
NAME_SERVER: Final = "Cluster:name server"
REMARK_CHARS_MAX: Final = 2_000


def refused(answer: Command, broker: str, request: Command | int) -> BrokerError:
    """`request` is what was asked, or its code where that alone says what it needs."""
    remark = answer.remark or ""
    if answer.code == Response.NO_PERMISSION and len(remark) <= REMARK_CHARS_MAX:
        denied = _denied(remark, broker, request)
        if denied is not None:
            return denied
    return BrokerError(answer.code, remark, broker)


def _denied(remark: str, broker: str, request: Command | int) -> AccessDenied | None:
    """None for a refusal that is not about who asks: a broker, topic or group may be closed to all."""
    user = "" if isinstance(request, int) else request.ext.get(ACCESS_KEY, "")
    if remark == _NO_NAME:
        advice = "give access_key and secret_key (COMETMQ_ACCESS_KEY, COMETMQ_SECRET_KEY, --access-key, --secret-key)"
        return AccessDenied(remark, broker, advice=advice)
    if remark == _WRONG_SIGNATURE or _UNKNOWN.fullmatch(remark):
        return AccessDenied(remark, broker, user=user, advice=_wrong_keys(user))
    disabled = _DISABLED.fullmatch(remark)
    if disabled is not None:
        name = disabled["user"]
        return AccessDenied(remark, broker, user=name, advice=f"cometmq user enable {name} lets it in again")
    found = _NOT_PERMITTED.fullmatch(remark)
    if found is None:
        return None
    user, resource = found["user"], found["resource"]
    actions = needed(request, resource)
    return AccessDenied(
        remark, broker, user=user, resource=resource, actions=actions, advice=_grant(user, resource, actions, found)
    )


def _wrong_keys(user: str) -> str:
    named = f" {user}" if user else ""
    return f"there is no user{named}, or the secret key is not its password: check both (cometmq user list)"


def _grant(user: str, resource: str, actions: tuple[str, ...], found: "re.Match[str]") -> str:
    if resource == NAME_SERVER:
        return "a name server lets nobody but Super users of its own change anything"
    action = actions[0] if actions else "ACTION"
    if "deny" in found["cause"]:
        return f"an entry denies it: cometmq acl explain {user} {action} {resource} --from {found['source']} says which"
    return f"cometmq acl grant {user} {resource} {action} --yes would permit it"


def needed(request: Command | int, resource: str) -> tuple[str, ...]:
    """The actions on `resource` that would do, what programs are granted first; empty if the request does not say."""
    from cometmq.auth.needs import NEEDS, UnreadableNeeds  # a large table, for errors only
    from cometmq.auth.resources import Action

    command = new_request(request, {}) if isinstance(request, int) else request
    rule = NEEDS.get(command.code)
    if rule is None:
        return ()
    kind, _, name = resource.partition(":")
    try:
        needs = rule(command, name if kind == "Cluster" else "")
    except UnreadableNeeds:
        return ()
    fitting = [need for need in needs if need.resource == resource] or [need for need in needs if need.kind == kind]
    return tuple(action.value for action in Action if fitting and action in fitting[0].actions)
