// @ts-check
// What is there, how it does, and what is wrong.
import { html, useLive, among, rate, short, count, bytes, duration, enc, some } from "/static/lib/core.js";
import { Head, Card, Stats, Chip, Table, Trouble, Loading, Meter, Chart, useHistory, Empty, Time } from "/static/lib/parts.js";

export default function Overview() {
  const { parts, trouble } = useLive(["overview"])("overview");
  const cluster = parts && parts.cluster;
  const [into, out] = useHistory(["cluster-in", "cluster-out"], { "cluster-in": cluster && cluster.in_rate, "cluster-out": cluster && cluster.out_rate });
  if (!parts) return html`<${Head} title="Overview"/><${Trouble} trouble=${trouble}/>${!trouble && html`<${Loading}/>`}`;
  const brokers = among(parts, "broker:"), groups = among(parts, "group:").sort((a, b) => b.behind - a.behind);
  const bad = parts.findings.filter((/** @type {any} */ it) => it.level === "fail").length;
  const dead = cluster.dead_letters_hour;
  return html`<${Head} title="Overview" about=${html`${cluster.clusters.join(", ") || "no cluster"} · ${some(parts.name_servers.length, "name server")} ${parts.name_servers.map((/** @type {any} */ it) => html`<span class="mono small" key=${it.address}> ${it.address}${it.up ? "" : " (silent)"}</span>`)}`}>
      ${bad ? html`<${Chip} kind="bad">${some(bad, "fault")}<//>` : parts.findings.length ? html`<${Chip} kind="warn">${some(parts.findings.length, "warning")}<//>` : html`<${Chip} kind="good">all is well<//>`}<//>
    <${Trouble} trouble=${trouble}/>
    <${Stats} items=${[
      { label: "Messages in", value: rate(cluster.in_rate), unit: "/s" }, { label: "Messages out", value: rate(cluster.out_rate), unit: "/s" },
      { label: "Not read by their groups", value: short(cluster.behind), under: some(cluster.groups, "group") },
      { label: "Dead letters, last hour", value: dead === null ? "unknown" : short(dead), level: dead ? "warn" : "", under: html`<a href="/dlq">${short(cluster.dead_letters)} in all</a>` },
      { label: "Brokers", value: `${cluster.brokers_up} of ${cluster.brokers}`, level: cluster.brokers_up < cluster.brokers ? "bad" : "", under: cluster.makes.join(", ") },
    ]}/>
    ${parts.findings.length > 0 && html`<${Card} title="What is wrong"><ul class="findings" aria-label="What is wrong">${parts.findings.map((/** @type {any} */ it) => html`<li key=${it.text}><${Chip} kind=${it.level === "fail" ? "bad" : "warn"}>${it.level === "fail" ? "fault" : "warning"}<//><span class="strong">${it.text}</span><span class="fix">${it.fix}</span></li>`)}</ul><//>`}
    <div class="grid"><${Card} cls="w7" title="Traffic" acts=${html`<span class="legend"><span class="c1" style=${{ "--c": "var(--teal)" }}>in</span><span style=${{ "--c": "var(--mark)" }}>out</span></span>`}>
        <${Chart} series=${[{ label: "in", color: "--teal", points: into }, { label: "out", color: "--mark", points: out }]}/><//>
      <${Card} cls="w5" title="Furthest behind" acts=${html`<a href="/groups">All groups</a>`}><${Table} label="Groups furthest behind" id=${(/** @type {any} */ r) => r.name} rows=${groups} empty=${html`<${Empty} title="No groups yet">Start a consumer and it appears here.<//>`} columns=${[
        { name: "group", title: "Group", show: (/** @type {any} */ r) => html`<a class="name" href=${`/groups/${enc(r.name)}`}>${r.name}</a>` },
        { name: "behind", title: "Behind", num: true, show: (/** @type {any} */ r) => count(r.behind) },
        { name: "age", title: "Age", num: true, show: (/** @type {any} */ r) => r.behind ? duration(r.age_ms) : html`<span class="muted">–</span>` },
        { name: "members", title: "Members", num: true, opt: true, show: (/** @type {any} */ r) => r.members || html`<${Chip} kind=${r.behind ? "warn" : ""}>none<//>` }]}/><//></div>
    <${Card} title="Brokers"><${Brokers} rows=${brokers}/><//>`;
}

/** @param {{rows: any[]}} p */
export const Brokers = ({ rows }) => html`<${Table} label="Brokers" id=${(/** @type {any} */ r) => `${r.name}:${r.number}`} rows=${rows} rowClass=${(/** @type {any} */ r) => r.up ? "" : "gone"} empty=${html`<${Empty} title="No broker is registered">Start one: cometmq broker<//>`} columns=${[
  { name: "broker", title: "Broker", show: (/** @type {any} */ r) => html`<a class="name" href=${`/brokers/${enc(r.name)}`}>${r.name}</a>${r.number ? html` <span class="muted">slave ${r.number}</span>` : ""}` },
  { name: "state", title: "State", show: (/** @type {any} */ r) => r.up ? html`<${Chip} kind="good">${r.role}<//>` : html`<${Chip} kind="bad">silent since <${Time} ms=${r.since_ms}/><//>` },
  { name: "version", title: "Version", opt: true, show: (/** @type {any} */ r) => html`${r.make || ""} <span class="muted">${r.version || ""}</span>` },
  { name: "address", title: "Address", opt: true, show: (/** @type {any} */ r) => html`<span class="mono">${r.address}</span>` },
  { name: "in", title: "In /s", num: true, value: (/** @type {any} */ r) => r.in_rate, show: (/** @type {any} */ r) => r.up ? rate(r.in_rate) : "–" },
  { name: "out", title: "Out /s", num: true, value: (/** @type {any} */ r) => r.out_rate, show: (/** @type {any} */ r) => r.up ? rate(r.out_rate) : "–" },
  { name: "disk", title: "Disk", opt: true, show: (/** @type {any} */ r) => r.disk === null || r.disk === undefined ? html`<span class="muted">unknown</span>` : html`<span class="nowrap"><${Meter} share=${r.disk} label=${`disk ${Math.round(r.disk * 100)} % full`}/><span class="small muted">${Math.round(r.disk * 100)} %</span></span>` },
  { name: "behind", title: "Flush behind", num: true, opt: true, show: (/** @type {any} */ r) => bytes(r.flush_behind) },
  { name: "dispatch", title: "Dispatch behind", num: true, opt: true, show: (/** @type {any} */ r) => bytes(r.dispatch_behind) },
]}/>`;
