"""Users of every broker of a cluster: requests 3001 to 3005, for CometMQ's brokers and RocketMQ's.

What they may do is in `access`; how every member is reached, and what becomes of one that is not, in `members`.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from cometmq.auth.users import DISABLED, ENABLED, NORMAL, PASSWORD_CHARS_MIN, SUPER
from cometmq.client.admin.calls import each
from cometmq.client.admin.members import Members, label
from cometmq.client.admin.results import BrokerMember, User
from cometmq.errors import AccessDenied, BrokerError, ConfigError, NotFound
from cometmq.wire import java_properties
from cometmq.wire.bodies import UserInfo, decode_list
from cometmq.wire.codes import Request
from cometmq.wire.headers import AuthListUsers, AuthUser

OVERLAP_S_MAX: Final = 30 * 86_400
EXISTS: Final = "existed"
# A setting that CometMQ's brokers show and RocketMQ's do not have.
OURS: Final = "tls.client.checkName"


class UserAdmin(Members):
    async def create_user(
        self,
        name: str,
        password: str,
        *,
        is_super: bool = False,
        is_enabled: bool = True,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> User:
        """ConfigError if a master knows the name already. A Super user may do everything, and so may its maker only."""
        _check_password(password)
        masters, slaves = await self._everybody(cluster, broker)
        known = [label(member) for member, info in await self._infos(masters, name) if info is not None]
        if known:
            raise ConfigError(
                f"user {name} exists on {', '.join(known)}: change the password (cometmq user passwd {name}), or name "
                "the broker that lacks it (broker)"
            )
        info = UserInfo(name, password, SUPER if is_super else NORMAL, ENABLED if is_enabled else DISABLED)
        await each(masters, lambda member: self._put_user(member, Request.AUTH_CREATE_USER, name, info))
        await self._each_slave(slaves, lambda member: self._bring_user(member, name, info))
        return await self.describe_user(name)

    async def alter_user(
        self,
        name: str,
        *,
        password: str | None = None,
        overlap_s: float = 0.0,
        is_super: bool | None = None,
        is_enabled: bool | None = None,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> User:
        """Change what is given, on every broker that knows the user. NotFound.

        A client that changes its own user's password signs with the new one from then on. The old one stays valid for
        `overlap_s`, so that programs can be changed one by one. RocketMQ's brokers cannot do that: ConfigError,
        and nothing is changed.
        """
        if password is not None:
            _check_password(password)
        masters, slaves = await self._everybody(cluster, broker)
        found = [member for member, info in await self._infos(masters, name) if info is not None]
        if not found:
            raise no_user(name)
        overlap_ms = await self._overlap_ms(overlap_s, [*found, *slaves]) if password is not None else None
        # One at a time: RocketMQ's tool, too, changes one thing with a request.
        changes = [
            UserInfo(name, user_type=SUPER if is_super else NORMAL) if is_super is not None else None,
            UserInfo(name, user_status=ENABLED if is_enabled else DISABLED) if is_enabled is not None else None,
            UserInfo(name, password=password) if password is not None else None,
        ]
        for change in changes:
            if change is not None:
                await self._alter(found, slaves, name, change, overlap_ms)
        signer = self.instance.signer
        if password is not None and signer is not None and signer.user == name:
            signer.renew(password)
        return await self.describe_user(name)

    async def delete_user(self, name: str, *, cluster: str | None = None, broker: str | None = None) -> list[str]:
        """With everything that was granted. Gives the names of the brokers that had the user. NotFound."""
        masters, slaves = await self._everybody(cluster, broker)
        found = [label(member) for member, info in await self._infos(masters, name) if info is not None]
        if not found:
            raise no_user(name)
        header = AuthUser(name)
        await each(masters, lambda member: self._ask_about(member, Request.AUTH_DELETE_USER, header))
        await self._each_slave(slaves, lambda member: self._ask_about(member, Request.AUTH_DELETE_USER, header))
        return found

    async def users(self, part: str = "", *, cluster: str | None = None) -> list[User]:
        """Users whose name has `part` in it, in the order of names."""
        members, tables = await self._read(cluster, None, lambda member: self._user_table(member, part))
        names = sorted({name for table in tables for name in table}, key=str.encode)
        return [_compared_user(name, members, tables) for name in names]

    async def describe_user(self, name: str) -> User:
        """NotFound if no broker knows the user."""
        members, found = await self._read(None, None, lambda member: self._user(member, name))
        tables = [{name: info} if info is not None else {} for info in found]
        if not any(tables):
            raise no_user(name)
        return _compared_user(name, members, tables)

    # One member

    async def _user(self, member: BrokerMember, name: str) -> UserInfo | None:
        response = await self._ask_about(member, Request.AUTH_GET_USER, AuthUser(name))
        return UserInfo.decode(response.body) if response.body else None

    async def _user_table(self, member: BrokerMember, part: str) -> dict[str, UserInfo]:
        response = await self._ask_about(member, Request.AUTH_LIST_USER, AuthListUsers(part or None))
        found = decode_list(UserInfo, response.body) if response.body else []
        return {info.username: info for info in found if info.username}

    async def _infos(
        self, members: Iterable[BrokerMember], name: str
    ) -> list[tuple[BrokerMember, UserInfo | None]]:
        chosen = list(members)
        return list(zip(chosen, await each(chosen, lambda member: self._user(member, name)), strict=True))

    async def _put_user(
        self, member: BrokerMember, code: int, name: str, info: UserInfo, overlap_ms: int | None = None
    ) -> None:
        await self._ask_about(member, code, AuthUser(name, overlap_ms), info.encode())

    async def _bring_user(self, slave: BrokerMember, name: str, info: UserInfo) -> None:
        """A slave may have copied the user from its master by now."""
        try:
            await self._put_user(slave, Request.AUTH_CREATE_USER, name, info)
        except BrokerError as error:
            if EXISTS not in error.remark:
                raise
            await self._put_user(slave, Request.AUTH_UPDATE_USER, name, info)

    async def _alter(
        self,
        masters: Sequence[BrokerMember],
        slaves: Sequence[BrokerMember],
        name: str,
        change: UserInfo,
        overlap_ms: int | None,
    ) -> None:
        overlap_ms = overlap_ms if change.password is not None else None
        await each(
            masters, lambda member: self._put_user(member, Request.AUTH_UPDATE_USER, name, change, overlap_ms)
        )

        async def alter(slave: BrokerMember) -> None:
            try:
                if await self._user(slave, name) is not None:
                    await self._put_user(slave, Request.AUTH_UPDATE_USER, name, change, overlap_ms)
            except AccessDenied as error:
                # Our own password: the slave may have copied it from its master by now.
                if change.password is None or error.user != name:
                    raise

        await self._each_slave(slaves, alter)

    async def _overlap_ms(self, overlap_s: float, members: Iterable[BrokerMember]) -> int | None:
        if overlap_s == 0:
            return None
        if not 0 < overlap_s <= OVERLAP_S_MAX:
            raise ConfigError(f"overlap_s is {overlap_s}, allowed are 0 to {OVERLAP_S_MAX} (30 days)")
        for member in members:
            response = await self.ask(member.address, Request.GET_BROKER_CONFIG)
            if OURS not in java_properties.parse(response.body):
                raise ConfigError(
                    f"broker {label(member)} is RocketMQ's and keeps one password for a user: change it without an "
                    "overlap, and the programs that use it with it"
                )
        return int(overlap_s * 1000)


def _check_password(password: str) -> None:
    if len(password) < PASSWORD_CHARS_MIN:
        raise ConfigError(f"the password has {len(password)} characters, at least {PASSWORD_CHARS_MIN} are needed")


def no_user(name: str) -> NotFound:
    return NotFound(f"no broker knows user {name}: create it (cometmq user create {name}) or check the name")


def _compared_user(name: str, members: Sequence[BrokerMember], tables: Sequence[dict[str, UserInfo]]) -> User:
    brokers = [label(member) for member, table in zip(members, tables, strict=True) if name in table]
    first = next(table[name] for table in tables if name in table)
    others = zip(members, tables, strict=True)
    differs = [label(member) for member, table in others if not _is_same_user(table.get(name), first)]
    return User(
        name,
        (first.user_type or NORMAL).lower() == SUPER.lower(),
        (first.user_status or ENABLED).lower() == ENABLED.lower(),
        tuple(brokers),
        tuple(differs),
    )


def _is_same_user(one: UserInfo | None, other: UserInfo) -> bool:
    """Passwords count where both brokers show them: only to Super users."""
    if one is None or (one.user_type, one.user_status) != (other.user_type, other.user_status):
        return False
    return None in (one.password, other.password) or one.password == other.password
