"""The settings of a proxy, with the key names of RocketMQ's rmq-proxy.json. They are read at the start."""

from dataclasses import dataclass
from typing import Final

from cometmq.config import SeenConfig
from cometmq.net.tls import with_file
from cometmq.settings import Live, SettingError, read, setting

NEVER: Final = Live.NEVER
I64_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyConfig(SeenConfig):
    namesrv_addresses: str = setting("namesrvAddr", "", NEVER)
    # RocketMQ's proxy listens on all addresses.
    bind_address: str = setting("bindAddress", "127.0.0.1", NEVER)
    grpc_port: int = setting("grpcServerPort", 8081, NEVER, most=65535)
    tls_test_mode: bool = setting("tlsTestModeEnable", True, NEVER)
    grpc_message_bytes_max: int = setting("grpcMaxInboundMessageSize", 16 << 20, NEVER, least=65_536)
    grpc_idle_ms: int = setting("grpcClientIdleTimeMills", 120_000, NEVER, least=1_000)
    shutdown_s: int = setting("grpcShutdownTimeSeconds", 30, NEVER, most=3_600)
    body_bytes_max: int = setting("maxMessageSize", 4 << 20, NEVER, least=1, most=64 << 20)
    check_message_types: bool = setting("enableTopicMessageTypeCheck", True, NEVER)
    delay_ms_max: int = setting("maxDelayTimeMills", 86_400_000, NEVER, most=I64_MAX)


def load(texts: dict[str, str]) -> ProxyConfig:
    """From the texts of a settings file and a command line; SettingError names what is wrong."""
    config, unknown = read(ProxyConfig(), with_file(texts))
    if unknown:
        raise SettingError(f"unknown to a proxy: {', '.join(sorted(unknown))}; `cometmq proxy -p` prints what it knows")
    if not name_servers(config):
        raise SettingError("namesrvAddr is empty: name the name servers of the cluster, host:port;host:port")
    return config


def name_servers(config: ProxyConfig) -> tuple[str, ...]:
    return tuple(part for it in config.namesrv_addresses.split(";") if (part := it.strip()))
