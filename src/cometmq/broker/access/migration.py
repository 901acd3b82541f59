"""Take over RocketMQ 4's access control at the start: accounts whose access key is not a user yet.

HOME/conf/acl/**.yml, .yaml    first; of two accounts with one key the first counts
HOME/conf/plain_acl.yml        HOME is rocketmqHome, else the environment's ROCKETMQ_HOME
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from cometmq.auth.acls import Acls
from cometmq.auth.plain_acl import FILE_BYTES_MAX, Migration, read_files
from cometmq.auth.users import Users
from cometmq.broker.config import BrokerConfig
from cometmq.errors import ConfigError

FILES_MAX: Final = 1_000


def migrate(config: BrokerConfig, users: Users, acls: Acls) -> list[str]:
    """Add them; gives what an operator has to know. Raises ConfigError for a file that is not one of RocketMQ 4."""
    if not config.migrate_acl:
        return []
    found = _read(_home(config))
    added = [name for name in found.users if name not in users.table]
    for name in added:
        users.put(found.users[name])
        if name in found.acls:
            acls.put(name, found.acls[name])
    done = (
        f"migrateAuthFromV1Enabled: {len(added)} of {len(found.users)} accounts were added, the others are users here"
    )
    return [done, *found.notes]


def _home(config: BrokerConfig) -> Path:
    home = config.rocketmq_home or os.environ.get("ROCKETMQ_HOME", "")
    if not home:
        raise ConfigError("migrateAuthFromV1Enabled=true needs rocketmqHome, the directory that has conf/plain_acl.yml")
    return Path(home)


def _read(home: Path) -> Migration:
    conf = home / "conf"
    folder = [path for path in sorted((conf / "acl").rglob("*")) if path.suffix in (".yml", ".yaml")]
    files = [path for path in [*folder, conf / "plain_acl.yml"] if path.is_file()]
    if not files or len(files) > FILES_MAX:
        raise ConfigError(
            f"migrateAuthFromV1Enabled=true, and {conf} has {len(files)} files of RocketMQ 4's access control: there "
            f"must be conf/plain_acl.yml or files in conf/acl/, at most {FILES_MAX}; set rocketmqHome, or turn it off"
        )
    return read_files([(str(path), _content(path)) for path in files])


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from error
