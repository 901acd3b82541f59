"""Brokers that ask who is there: their settings, and the user whose keys a load signs with.

Both makes check the signature of every request and look for the entry that permits it. The load is not a Super user,
whom no policy concerns: it may write to topics by a prefix.
"""

from __future__ import annotations

import json
from typing import Final

from tests.compat.harness import remoting
from tests.compat.harness.remoting import Keys

CREATE_USER: Final = 3001
CREATE_ACL: Final = 3006
PROVIDERS: Final = "org.apache.rocketmq.auth"
ROOT: Final = Keys("root", "password of root")
USER: Final = Keys("bench", "password-of-bench")
CLOSED: Final[tuple[tuple[str, object], ...]] = (
    ("authenticationEnabled", True),
    ("authorizationEnabled", True),
    ("authenticationMetadataProvider", f"{PROVIDERS}.authentication.provider.LocalAuthenticationMetadataProvider"),
    ("authorizationMetadataProvider", f"{PROVIDERS}.authorization.provider.LocalAuthorizationMetadataProvider"),
    ("initAuthenticationUser", json.dumps({"username": ROOT.access_key, "password": ROOT.secret_key})),
    ("innerClientAuthenticationCredentials", '{"accessKey":"servers","secretKey":"password of servers"}'),
)
# The harness asks a Java broker by request 25, unsigned, until it has registered.
ONLY_JAVA: Final[dict[str, object]] = {"authenticationWhitelist": "25"}


def add_user(address: str) -> None:
    """Make the user of the load, and let it write to the topics of benchmarks."""
    subject = f"User:{USER.access_key}"
    user = {"username": USER.access_key, "password": USER.secret_key, "userType": "Normal"}
    entry = {"resource": "Topic:Bench*", "actions": ["Pub"], "decision": "Allow"}
    acl = {"subject": subject, "policies": [{"policyType": "Custom", "entries": [entry]}]}
    for code, ext, body in (
        (CREATE_USER, {"username": USER.access_key}, user),
        (CREATE_ACL, {"subject": subject}, acl),
    ):
        answer = remoting.call(address, code, dict(ext), json.dumps(body).encode(), keys=ROOT)
        if answer.code != 0:
            raise SystemExit(f"{address} refused request {code}: {answer.code} {answer.remark}")
