"""A replica has the users and policies of its master.

    3005   users       3010   policies       both signed with innerClientAuthenticationCredentials, of either make

RocketMQ's replicas copy neither. Users come without their passwords unless the master takes the signature for that of
a Super user: then nothing is taken over. A user with an entry that is not understood here has no policies here, since
to leave out one entry could leave out a Deny.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from cometmq.auth.acls import NO_ACL, acl_of, read_subject
from cometmq.auth.policies import Acl
from cometmq.auth.users import User, user_of
from cometmq.broker.access.control import AccessControl
from cometmq.errors import RequestError
from cometmq.wire.bodies import AclInfo, UserInfo
from cometmq.wire.bodies.base import decode_list
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import Command

logger = logging.getLogger(__name__)

# Of a server at this address; RequestError if it refuses.
Ask = Callable[[str, int], Awaitable[Command]]
Part = Callable[[str], Awaitable[None]]


class Copies:
    def __init__(self, access: AccessControl, ask: Ask) -> None:
        self._access: Final = access
        self._ask: Final = ask

    def parts(self) -> list[Part]:
        """What to ask a master for."""
        is_wanted = self._access.rules.authentication and self._access.signer is not None
        return [self.users, self.policies] if is_wanted else []

    async def users(self, master: str) -> None:
        answer = await self._ask(master, Request.AUTH_LIST_USER)
        infos = decode_list(UserInfo, answer.body) if answer.body else []
        users = [user_of(info) for info in infos]
        if not users or any(not user.password for user in users):
            raise RequestError(
                Response.NO_PERMISSION,
                "it shows no passwords: let authenticationEnabled and innerClientAuthenticationCredentials be the same "
                "on both",
            )
        known = self._access.users
        if {user.name: _shown(user) for user in users} != {user.name: _shown(user) for user in known.table.values()}:
            known.replace_all(users)
            self._taken_over("users", len(users), master)

    async def policies(self, master: str) -> None:
        answer = await self._ask(master, Request.AUTH_LIST_ACL)
        infos = decode_list(AclInfo, answer.body) if answer.body else []
        acls = {name: acl for name, acl in map(_read, infos) if acl != NO_ACL}
        if acls != self._access.acls.table:
            self._access.acls.replace_all(acls)
            self._taken_over("policies", len(acls), master)

    def _taken_over(self, what: str, count: int, master: str) -> None:
        logger.info("took over %s count=%d master=%s", what, count, master)
        self._access.open()


def _shown(user: User) -> tuple[str, bool, bool]:
    """What the wire has of a user."""
    return user.password, user.is_super, user.is_enabled


def _read(info: AclInfo) -> tuple[str, Acl]:
    name = read_subject(info.subject)
    try:
        return name, acl_of(info)
    except RequestError as error:
        logger.warning("skip policies user=%s cause=%s", name, error.remark)
        return name, NO_ACL
