// @ts-check
// Consumer groups, and one group: queues, members, charts, moving its offsets, dead letters.
import { html, useState, useMemo, useLive, useAnswer, useAddress, among, go, withQuery, count, short, rate, duration, when, enc, some, api } from "/static/lib/core.js";
import { Head, Card, Stats, Chip, Table, Trouble, Loading, Tabs, Facts, Filter, Empty, Ask, Act, Chart, Spark, Span, Dialog, useHistory } from "/static/lib/parts.js";
import { Letters } from "/static/pages/letters.js";

export default function Groups() {
  const { query } = useAddress();
  const [seen, see] = useState(/** @type {string[]} */ ([]));
  const live = useLive(["groups", ...seen.slice(0, 60).map((name) => `lag:${name}`)]);
  const { parts, trouble } = live("groups");
  const filter = (query.get("filter") || "").toLowerCase(), system = query.get("system") === "1";
  const rows = useMemo(() => Object.values(parts || {}).filter((/** @type {any} */ it) => (system || !it.system) && it.name.toLowerCase().includes(filter)).sort((/** @type {any} */ a, /** @type {any} */ b) => a.name < b.name ? -1 : 1), [parts, filter, system]);
  const names = seen.slice(0, 60).map((name) => `lag:${name}`);
  const values = Object.fromEntries(names.map((name) => { const it = live(name).parts; return [name, it ? it.lag.behind : null]; }));
  const lines = useHistory(names, values);
  const known = (/** @type {any} */ row, /** @type {(it: any) => any} */ show) => { const it = live(`lag:${row.name}`); return it.parts ? show(it.parts.lag) : html`<span class="muted">${it.trouble ? "unknown" : "…"}</span>`; };
  return html`<${Head} title="Groups" about=${parts ? some(rows.length, "consumer group") : ""}><${Ask} action="group.create" label="Create group" main title="Create a consumer group" fields=${[{ name: "group", title: "Name", hint: "billing" }, { name: "retries", title: "Tries before a message is a dead letter", kind: "number", start: "16" }, { name: "ordered", title: "consumes in order", kind: "flag", start: false }]} make=${(/** @type {any} */ v) => ({ group: v.group.trim(), retries_max: Number(v.retries), ordered: v.ordered })}/><//>
    <${Trouble} trouble=${trouble}/><div class="filter"><${Filter} label="Filter by name"/><label class="check"><input type="checkbox" checked=${system} onChange=${(/** @type {any} */ e) => go(withQuery({ system: e.target.checked ? "1" : null }), true)}/>system groups</label></div>
    <${Card}>${!parts ? html`<${Loading}/>` : html`<${Table} label="Groups" id=${(/** @type {any} */ r) => r.name} rows=${rows} onSeen=${see} empty=${html`<${Empty} title=${filter ? "No group has that in its name" : "No groups yet"}>${filter ? "" : "Start a consumer and its group appears here."}<//>`} columns=${[
      { name: "name", title: "Group", show: (/** @type {any} */ r) => html`<a class="name" href=${`/groups/${enc(r.name)}`}>${r.name}</a>` },
      { name: "state", title: "State", show: (/** @type {any} */ r) => known(r, (it) => it.state === "running" ? html`<${Chip} kind="good">${some(it.members, "member")}<//>` : html`<${Chip} kind=${it.behind ? "warn" : ""}>nobody online<//>`) },
      { name: "behind", title: "Behind", num: true, show: (/** @type {any} */ r) => known(r, (it) => count(it.behind)) },
      { name: "hour", title: "Last hour", opt: true, show: (/** @type {any} */ r) => html`<${Spark} points=${lines[names.indexOf(`lag:${r.name}`)]} label=${`lag of ${r.name} over the last hour`}/>` },
      { name: "age", title: "Age", num: true, opt: true, show: (/** @type {any} */ r) => known(r, (it) => it.behind ? duration(it.age_ms) : html`<span class="muted">–</span>`) },
      { name: "rate", title: "Read /s", num: true, opt: true, show: (/** @type {any} */ r) => known(r, (it) => rate(it.rate)) },
      { name: "topics", title: "Topics", opt: true, show: (/** @type {any} */ r) => known(r, (it) => html`<span class="clipped" style=${{ maxWidth: "220px" }}>${it.topics.join(", ") || html`<span class="muted">none yet</span>`}</span>`) },
      { name: "retries", title: "Retries", num: true, opt: true, show: (/** @type {any} */ r) => known(r, (it) => count(it.retries)) },
      { name: "dead", title: "Dead", num: true, show: (/** @type {any} */ r) => known(r, (it) => it.dead_letters ? html`<a href=${`/groups/${enc(r.name)}/dlq`}>${count(it.dead_letters)}</a>` : it.dead_letters === null ? "unknown" : html`<span class="muted">0</span>`) }]}/>`}<//>`;
}

/** @param {{group: string, tab: string}} p */
export function GroupPage({ group, tab }) {
  const key = `group:${group}`;
  const { parts, trouble } = useLive([key])(key);
  const base = `/groups/${enc(group)}`;
  const it = parts && parts.group, figures = parts && parts.figures;
  return html`<${Head} title=${group} crumb=${html`<a href="/groups">Groups</a>`} about=${it ? it.unknown || html`${it.enabled ? "" : html`<${Chip} kind="warn">switched off<//> `}${it.ordered ? "in order, " : ""}${some(it.retries_max, "try", "tries")} before a message is a dead letter` : ""}>
      ${figures && html`<${Reset} group=${group} topics=${figures.topics}/>`}
      ${it && !it.unknown && html`<${Ask} action="group.alter" label="Change" title=${`Change ${group}`} start=${{ retries: String(it.retries_max), enabled: it.enabled, ordered: it.ordered, broadcast: it.broadcast_allowed }} fields=${[{ name: "retries", title: "Tries before a message is a dead letter", kind: "number" }, { name: "enabled", title: "its members get messages", kind: "flag" }, { name: "ordered", title: "consumes in order", kind: "flag" }, { name: "broadcast", title: "members may broadcast", kind: "flag" }]} make=${(/** @type {any} */ v) => ({ group, retries_max: Number(v.retries), enabled: v.enabled, ordered: v.ordered, broadcast_allowed: v.broadcast })}/>
      <${Act} action="group.delete" danger request=${() => ({ group })} onDone=${(/** @type {any} */ r) => r.result === "done" && go("/groups")}>Delete<//>`}<//>
    <${Trouble} trouble=${trouble}/><${Tabs} base=${base} at=${tab} items=${[["", "Overview"], ["members", "Members"], ["dlq", "Dead letters"]]}/>
    ${tab === "dlq" ? html`<${Letters} group=${group}/>` : !parts ? !trouble && html`<${Loading}/>` : tab === "members" ? html`<${Members} group=${group} members=${parts.members}/>` : html`<${Progress} group=${group} parts=${parts}/>`}`;
}

/** @param {{group: string, parts: any}} p */
function Progress({ group, parts }) {
  const figures = parts.figures;
  const [lag, read] = useHistory([`lag:${group}`, `rate:${group}`], { [`lag:${group}`]: figures.behind, [`rate:${group}`]: figures.rate });
  const rows = among(parts, "queue:").sort((a, b) => a.topic < b.topic ? -1 : a.topic > b.topic ? 1 : a.broker < b.broker ? -1 : a.broker > b.broker ? 1 : a.id - b.id);
  const now = Date.now();
  return html`<${Stats} items=${[{ label: "Behind", value: short(figures.behind), level: figures.behind && figures.state !== "running" ? "warn" : "" }, { label: "Age of what is not read", value: figures.behind ? duration(figures.age_ms) : "–" }, { label: "Read", value: rate(figures.rate), unit: "/s" }, { label: "Members", value: count(figures.members), under: figures.state === "running" ? "running" : "nobody online" }, { label: "Waiting for another try", value: count(figures.retries) }, { label: "Dead letters", value: figures.dead_letters === null ? "unknown" : count(figures.dead_letters), level: figures.dead_letters ? "warn" : "" }]}/>
    ${parts.members.differs && html`<p class="note warn" role="status">Members of this group subscribe to different things, so some messages reach nobody: see Members.</p>`}
    <div class="grid"><${Card} cls="w6" title="Messages behind"><${Chart} series=${[{ label: "behind", color: "--mark", points: lag }]}/><//><${Card} cls="w6" title="Read, a second"><${Chart} series=${[{ label: "read", color: "--teal", points: read }]}/><//></div>
    <${Card} title="Queues" acts=${html`<span class="small muted">bar: from the oldest message to now; mark: how far the group is</span>`}><${Table} label="Queues" id=${(/** @type {any} */ r) => `${r.topic}:${r.broker}:${r.id}`} rows=${rows} empty=${html`<${Empty} title="It has read nothing yet">Once its first member has committed an offset, the queues are here.<//>`} columns=${[
      { name: "topic", title: "Topic", value: (/** @type {any} */ r) => r.topic, show: (/** @type {any} */ r) => html`<a class="name" href=${`/topics/${enc(r.topic)}`}>${r.topic}</a>` },
      { name: "queue", title: "Queue", num: true, value: (/** @type {any} */ r) => r.id, show: (/** @type {any} */ r) => html`<span class="muted">${r.broker}</span> ${r.id}` },
      { name: "owner", title: "Owner", opt: true, show: (/** @type {any} */ r) => r.owner ? html`<span class="mono small">${r.owner}</span>` : html`<span class="muted">nobody</span>` },
      { name: "committed", title: "Committed", num: true, opt: true, value: (/** @type {any} */ r) => r.committed, show: (/** @type {any} */ r) => r.committed < 0 ? "none" : count(r.committed) },
      { name: "end", title: "End", num: true, opt: true, value: (/** @type {any} */ r) => r.end, show: (/** @type {any} */ r) => count(r.end) },
      { name: "behind", title: "Behind", num: true, value: (/** @type {any} */ r) => r.behind, show: (/** @type {any} */ r) => count(r.behind) },
      { name: "time", title: "In time", show: (/** @type {any} */ r) => r.oldest_ms ? html`<${Span} begin=${r.oldest_ms} end=${now} at=${r.behind ? r.consumed_ms || r.oldest_ms : now} label=${`oldest ${when(r.oldest_ms)}, read to ${r.behind ? when(r.consumed_ms) : "the end"}`}/>` : html`<span class="muted">empty</span>` }]}/><//>`;
}

/** @param {{group: string, members: any}} p */
function Members({ group, members }) {
  const [open, see] = useState(/** @type {any} */ (null));
  const words = (/** @type {any[] | null} */ list) => list === null ? html`<span class="muted">does not say</span>` : list.map((it) => `${it.topic} ${it.expression === "*" ? "" : it.expression}`.trim()).join("; ");
  return html`${members.differs && html`<p class="note warn" role="status">Subscriptions differ: brokers keep one of them for the whole group, so the others' messages may be lost. Give all members the same.</p>`}
    <${Card} title=${some(members.rows.length, "member")}><${Table} label="Members" id=${(/** @type {any} */ r) => r.client_id} rows=${members.rows} empty=${html`<${Empty} title="Nobody is online">Members that are connected appear here.<//>`} columns=${[
      { name: "client", title: "Client", show: (/** @type {any} */ r) => html`<button class="btn tiny" onClick=${() => see(r.client_id)}><span class="mono">${r.client_id}</span></button>` },
      { name: "address", title: "Address", opt: true, show: (/** @type {any} */ r) => html`<span class="mono">${r.address}</span>` },
      { name: "language", title: "Language", show: (/** @type {any} */ r) => html`${r.language} <span class="muted">protocol ${r.version}</span>` },
      { name: "queues", title: "Queues", num: true, show: (/** @type {any} */ r) => r.error ? html`<span class="muted" title=${r.error}>unknown</span>` : r.queues.length },
      { name: "subscribes", title: "Subscribes to", show: (/** @type {any} */ r) => html`${words(r.subscriptions)} ${r.differs ? html`<${Chip} kind="warn">differs<//>` : ""}` }]}/><//>
    ${open && html`<${Member} group=${group} id=${open} onClose=${() => see(null)}/>`}`;
}

/** @param {{group: string, id: string, onClose: () => void}} p */
function Member({ group, id, onClose }) {
  const [stacks, ask] = useState(false);
  const { data, error } = useAnswer(`/api/groups/${enc(group)}/member?client_id=${enc(id)}${stacks ? "&stacks=true" : ""}`);
  return html`<${Dialog} title=${id} onClose=${onClose} foot=${html`<button class="btn" disabled=${stacks} onClick=${() => ask(true)}>Stacks of its threads</button><button class="btn main-act" onClick=${onClose}>Close</button>`}>
    ${error ? html`<${Trouble} trouble=${error}/>` : !data ? html`<${Loading}/>` : html`<${Facts} items=${Object.entries(data.rates).flatMap(([topic, r]) => Object.entries(/** @type {any} */ (r)).map(([name, value]) => [`${topic} ${name.replaceAll("_", " ")}`, typeof value === "number" ? value.toFixed(2) : String(value)]))}/>
      <${Facts} items=${Object.entries(data.properties)}/>${stacks && (data.stacks ? html`<pre class="body stacks" aria-label="Stacks">${data.stacks}</pre>` : html`<p class="note">This client tells no stacks: only Java's do.</p>`)}`}<//>`;
}

const KINDS = [["latest", "the end"], ["earliest", "the beginning"], ["time", "a time"], ["offsets", "offsets by queue"], ["copy", "where another group is"]];

/** @param {{group: string, topics: string[]}} p */
function Reset({ group, topics }) {
  return html`<${Ask} action="group.reset" label="Move offsets" title=${`Move ${group}`} start=${{ topic: topics[0] || "", to: "latest" }} fields=${[{ name: "topic", title: "Topic", list: topics }, { name: "to", title: "To", kind: "choice", choices: KINDS }, { name: "at", title: "Time", kind: "datetime-local", when: (/** @type {any} */ v) => v.to === "time" }, { name: "offsets", title: "Offsets, broker/queue=offset a line", kind: "text", when: (/** @type {any} */ v) => v.to === "offsets" }, { name: "source", title: "Group to copy from", when: (/** @type {any} */ v) => v.to === "copy" }]}
    make=${(/** @type {any} */ v) => {
      const request = /** @type {any} */ ({ group, topic: v.topic.trim(), to: v.to });
      if (v.to === "time") { const at = new Date(v.at).getTime(); if (!at) throw new Error("give a day and a time"); request.at_ms = at; }
      if (v.to === "copy") request.source = v.source.trim();
      if (v.to === "offsets") request.offsets = Object.fromEntries(v.offsets.split("\n").filter((/** @type {string} */ it) => it.trim()).map((/** @type {string} */ it) => { const at = it.lastIndexOf("="); if (at < 1) throw new Error(`“${it}” is not broker/queue=offset`); return [it.slice(0, at).trim(), it.slice(at + 1).trim()]; }));
      return request;
    }}/>`;
}
export { api, Dialog };
