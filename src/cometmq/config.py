"""The settings of each process, with RocketMQ's key names and defaults. How they are read: settings.py"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cometmq.settings import Live, setting

NOW: Final = Live.NOW
NEVER: Final = Live.NEVER


def _home_file(name: str) -> str:
    """RocketMQ's place for the files of a name server."""
    return str(Path.home() / "namesrv" / name)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """What the wire hides. None of it can be changed over the wire."""

    # TLS of the ports
    tls_mode: str = setting("tls.server.mode", "permissive", NEVER, choices=("disabled", "permissive", "enforcing"))
    tls_certificate_path: str = setting("tls.server.certPath", "", NEVER)
    tls_key_path: str = setting("tls.server.keyPath", "", NEVER)
    tls_key_password: str = setting("tls.server.keyPassword", "", NEVER, secret=True)
    tls_trust_path: str = setting("tls.server.trustCertPath", "", NEVER)
    tls_client_auth: str = setting(
        "tls.server.need.client.auth", "none", NEVER, choices=("none", "optional", "require")
    )
    tls_config_file: str = setting("tls.config.file", "", NEVER)

    # TLS of what is dialled
    tls_outgoing_verified: bool = setting("tls.client.authServer", True, NEVER)  # RocketMQ: false
    # Empty: as the server's own mode says, as in RocketMQ: TLS for what it dials if it takes nothing else itself.
    tls_outgoing: str = setting("tls.enable", "", NEVER, choices=("", "true", "false"))
    tls_outgoing_name_checked: bool = setting("tls.client.checkName", True, NEVER)
    tls_outgoing_server_name: str = setting("tls.client.serverName", "", NEVER)
    tls_outgoing_trust_path: str = setting("tls.client.trustCertPath", "", NEVER)
    tls_outgoing_certificate_path: str = setting("tls.client.certPath", "", NEVER)
    tls_outgoing_key_path: str = setting("tls.client.keyPath", "", NEVER)
    tls_outgoing_key_password: str = setting("tls.client.keyPassword", "", NEVER, secret=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenConfig(TlsConfig):
    """What a server shows of itself."""

    # Metrics and health
    metrics_exporter_type: str = setting("metricsExporterType", "DISABLE", NEVER)
    metrics_port: int = setting("metricsPromExporterPort", 5557, NEVER, most=65535)
    metrics_host: str = setting("metricsPromExporterHost", "", NEVER)
    metrics_label: str = setting("metricsLabel", "", NEVER)
    metrics_series_max: int = setting("metricsOtelCardinalityLimit", 50_000, NEVER, least=1, most=1_000_000)
    metrics_log_interval_ms: int = setting("metricLoggingExporterIntervalInMills", 10_000, NEVER, least=100)
    health_port: int = setting("healthPort", 0, NEVER, most=65535)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig(SeenConfig):
    """What every server has: who may talk to it. None of it can be changed over the wire."""

    # Who may talk to it
    authentication_enabled: bool = setting("authenticationEnabled", False, NEVER)
    authentication_provider: str = setting("authenticationProvider", "", NEVER)
    authentication_metadata_provider: str = setting("authenticationMetadataProvider", "", NEVER)
    authentication_strategy: str = setting("authenticationStrategy", "", NEVER)
    authentication_whitelist: str = setting("authenticationWhitelist", "", NEVER)
    init_authentication_user: str = setting("initAuthenticationUser", "", NEVER, secret=True)
    inner_credentials: str = setting("innerClientAuthenticationCredentials", "", NEVER, secret=True)
    audit_log_path: str = setting("authAuditLogPath", "", NEVER)
    proxy_trusted_addresses: str = setting("proxyProtocolTrustedAddresses", "", NEVER)


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServerConfig(ServerConfig):
    """One name server process. Keys without a comment are RocketMQ's; the last group is our own."""

    listen_port: int = setting("listenPort", 9876, NEVER, most=65535)
    # RocketMQ listens on 0.0.0.0; a server without access control is only local until told otherwise.
    bind_address: str = setting("bindAddress", "127.0.0.1", NEVER)
    idle_timeout_s: int = setting("serverChannelMaxIdleTimeSeconds", 120, least=1, most=86_400)
    shut_down_gracefully: bool = setting("enableShutdownGracefully", False)
    shut_down_wait_s: int = setting("shutdownWaitTimeSeconds", 30, most=3_600)

    auth_config_path: str = setting("authConfigPath", "", NEVER)

    # For mqadmin: sets that elect their masters (docs/failover.md)
    controller_store: str = setting("controllerStore", "", NEVER)

    kv_config_path: str = setting("kvConfigPath", "", NEVER)
    config_store_path: str = setting("configStorePath", "", NEVER)
    rocketmq_home: str = setting("rocketmqHome", "", NEVER)
    config_black_list: str = setting("configBlackList", "configBlackList;configStorePath;kvConfigPath", NEVER)

    route_requests_max: int = setting("clientRequestThreadPoolQueueCapacity", 50_000, least=1, most=1_000_000)
    default_requests_max: int = setting("defaultThreadPoolQueueCapacity", 10_000, least=1, most=1_000_000)
    scan_interval_ms: int = setting("scanNotActiveBrokerInterval", 5_000, least=1, most=3_600_000)

    cluster_test: bool = setting("clusterTest", False)
    upstream_addresses: str = setting("rocketmq.namesrv.addr", "", NEVER)

    order_message_enable: bool = setting("orderMessageEnable", False, NOW)
    return_order_topic_config_to_broker: bool = setting("returnOrderTopicConfigToBroker", True, NOW)
    support_acting_master: bool = setting("supportActingMaster", False, NOW)
    notify_min_broker_id_changed: bool = setting("notifyMinBrokerIdChanged", False, NOW)
    enable_all_topic_list: bool = setting("enableAllTopicList", True, NOW)
    enable_topic_list: bool = setting("enableTopicList", True, NOW)
    need_wait_for_service: bool = setting("needWaitForService", False, NOW)
    wait_for_service_s: int = setting("waitSecondsForService", 45, NOW, most=3_600)
    delete_topic_with_broker_registration: bool = setting("deleteTopicWithBrokerRegistration", False, NOW)

    # These bound what peers can make this process keep, so none of them may change them.
    route_answer_bytes_max: int = setting("routeAnswerBytesMax", 64 << 20, NEVER)
    kv_bytes_max: int = setting("kvConfigBytesMax", 8 << 20, NEVER, most=15 << 20)
    kv_entries_max: int = setting("kvConfigEntriesMax", 10_000, NEVER, least=1, most=100_000)
    kv_value_chars_max: int = setting("kvConfigValueCharsMax", 65_536, NEVER, least=1, most=1 << 20)

    @property
    def kv_file(self) -> Path:
        return Path(self.kv_config_path or _home_file("kvConfig.json")).absolute()

    @property
    def config_file(self) -> Path:
        return Path(self.config_store_path or _home_file("namesrv.properties")).absolute()
