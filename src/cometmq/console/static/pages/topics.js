// @ts-check
// Topics, and one topic with its parts.
import { html, useState, useMemo, useLive, useAnswer, useAddress, among, go, withQuery, count, short, rate, duration, enc, some } from "/static/lib/core.js";
import { Head, Card, Stats, Chip, Table, Trouble, Loading, Tabs, Facts, Filter, Empty, Time, Ask, Act, Chart, useHistory } from "/static/lib/parts.js";
import Messages from "/static/pages/messages.js";

const KINDS = ["UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"];
const word = (/** @type {string} */ kind) => kind === "UNSPECIFIED" ? "any" : kind.toLowerCase();

export default function Topics() {
  const { query } = useAddress();
  const [seen, see] = useState(/** @type {string[]} */ ([]));
  const live = useLive(["topics", ...seen.slice(0, 60).map((name) => `figures:${name}`)]);
  const { parts, trouble } = live("topics");
  const filter = (query.get("filter") || "").toLowerCase(), system = query.get("system") === "1";
  const rows = useMemo(() => Object.values(parts || {}).filter((/** @type {any} */ it) => (system || !it.system) && it.name.toLowerCase().includes(filter)).sort((/** @type {any} */ a, /** @type {any} */ b) => a.name < b.name ? -1 : 1), [parts, filter, system]);
  const figures = (/** @type {any} */ row) => { const found = live(`figures:${row.name}`).parts; return found ? found.figures : null; };
  const known = (/** @type {any} */ row, /** @type {(it: any) => any} */ show) => { const it = figures(row); return it ? show(it) : html`<span class="muted">…</span>`; };
  return html`<${Head} title="Topics" about=${parts ? `${some(rows.length, "topic")}${filter ? ` with “${filter}” in the name` : ""}` : ""}><${CreateTopic}/><//>
    <${Trouble} trouble=${trouble}/>
    <div class="filter"><${Filter} label="Filter by name"/><label class="check"><input type="checkbox" checked=${system} onChange=${(/** @type {any} */ e) => go(withQuery({ system: e.target.checked ? "1" : null }), true)}/>system topics</label></div>
    <${Card}>${!parts ? html`<${Loading}/>` : html`<${Table} label="Topics" id=${(/** @type {any} */ r) => r.name} rows=${rows} onSeen=${see} empty=${html`<${Empty} title=${filter ? "No topic has that in its name" : "No topics yet"}>${filter ? "" : "Create one here, or send to it: cometmq send orders hello"}<//>`} columns=${[
      { name: "name", title: "Topic", show: (/** @type {any} */ r) => html`<a class="name" href=${`/topics/${enc(r.name)}`}>${r.name}</a>` },
      { name: "kind", title: "Type", opt: true, value: (/** @type {any} */ r) => r.kind, show: (/** @type {any} */ r) => html`<${Chip} plain kind=${r.kind === "UNSPECIFIED" ? "" : "blue"}>${r.system ? "system" : word(r.kind)}<//>` },
      { name: "queues", title: "Queues", num: true, opt: true, value: (/** @type {any} */ r) => r.queues, show: (/** @type {any} */ r) => count(r.queues) },
      { name: "rate", title: "In /s", num: true, show: (/** @type {any} */ r) => known(r, (it) => rate(it.rate)) },
      { name: "messages", title: "Messages", num: true, show: (/** @type {any} */ r) => known(r, (it) => count(it.messages)) },
      { name: "oldest", title: "Oldest", num: true, opt: true, show: (/** @type {any} */ r) => known(r, (it) => it.oldest_ms ? duration(Date.now() - it.oldest_ms) : html`<span class="muted">empty</span>`) },
      { name: "groups", title: "Groups", num: true, opt: true, show: (/** @type {any} */ r) => known(r, (it) => it.groups || html`<span class="muted">none</span>`) }]}/>`}<//>`;
}

const CreateTopic = () => html`<${Ask} action="topic.create" label="Create topic" main title="Create a topic" onDone=${(/** @type {any} */ r) => { if (r.result === "done") go(`/topics/${enc(r.title.replace("Create topic ", ""))}`); }}
  fields=${[{ name: "topic", title: "Name", hint: "orders" }, { name: "queues", title: "Queues on each broker", kind: "number", start: "8" }, { name: "kind", title: "What messages it is for", kind: "choice", start: "UNSPECIFIED", choices: KINDS.map((it) => [it, word(it)]) }]}
  make=${(/** @type {any} */ v) => ({ topic: v.topic.trim(), queues: Number(v.queues), kind: v.kind })}/>`;

/** @param {{topic: string, tab: string}} p */
export function TopicPage({ topic, tab }) {
  const key = `topic:${topic}`;
  const { parts, trouble } = useLive([key])(key);
  const base = `/topics/${enc(topic)}`;
  const it = parts && parts.topic;
  return html`<${Head} title=${topic} crumb=${html`<a href="/topics">Topics</a>`} about=${it ? html`${it.system ? "system topic" : word(it.kind) === "any" ? "messages of any type" : `${word(it.kind)} messages`}, on ${some(it.brokers.length, "broker")}` : ""}>
      ${it && html`<${SendMessage} topic=${topic}/><${AlterTopic} it=${it}/><${Act} action="topic.delete" danger request=${() => ({ topic })} onDone=${(/** @type {any} */ r) => r.result === "done" && go("/topics")}>Delete<//>`}<//>
    <${Trouble} trouble=${trouble}/>
    <${Tabs} base=${base} at=${tab} items=${[["", "Overview"], ["messages", "Messages"], ["groups", "Groups"], ["producers", "Producers"], ["route", "Route"], ["settings", "Settings"]]}/>
    ${tab === "messages" ? html`<${Messages} topic=${topic}/>` : !parts ? !trouble && html`<${Loading}/>`
      : tab === "groups" ? html`<${TopicGroups} parts=${parts}/>` : tab === "producers" ? html`<${Producers} topic=${topic}/>`
      : tab === "route" ? html`<${Route} topic=${topic}/>` : tab === "settings" ? html`<${Settings} it=${it}/>` : html`<${Queues} topic=${topic} parts=${parts}/>`}`;
}

const SendMessage = (/** @type {{topic: string}} */ { topic }) => html`<${Ask} action="message.send" label="Send a message" title=${`Send to ${topic}`} fields=${[{ name: "body", title: "Body", kind: "text" }, { name: "tag", title: "Tag" }, { name: "keys", title: "Keys, separated by blanks" }, { name: "properties", title: "Properties, NAME=VALUE a line", kind: "text" }]}
  make=${(/** @type {any} */ v) => ({ topic, body: v.body, tag: v.tag, keys: v.keys.split(/\s+/).filter(Boolean), properties: pairs(v.properties) })}/>`;

/** @param {string} text */
function pairs(text) {
  const found = /** @type {Record<string, string>} */ ({});
  for (const line of text.split("\n").filter((it) => it.trim())) {
    const at = line.indexOf("=");
    if (at < 1) throw new Error(`“${line}” is not NAME=VALUE`);
    found[line.slice(0, at).trim()] = line.slice(at + 1);
  }
  return found;
}

const AlterTopic = (/** @type {{it: any}} */ { it }) => html`<${Ask} action="topic.alter" label="Change" title=${`Change ${it.name}`} start=${{ queues: String(Math.max(...it.brokers.map((/** @type {any} */ b) => b.write_queues))), permissions: it.brokers[0].permissions }}
  fields=${[{ name: "queues", title: "Queues on each broker", kind: "number" }, { name: "permissions", title: "Permissions", kind: "choice", choices: [["rw", "read and write"], ["r", "read only"], ["w", "write only"]] }]}
  make=${(/** @type {any} */ v) => ({ topic: it.name, queues: Number(v.queues), permissions: v.permissions })}/>`;

/** @param {{topic: string, parts: any}} p */
function Queues({ topic, parts }) {
  const rows = among(parts, "queue:");
  const figures = parts.figures;
  const [into] = useHistory([`in:${topic}`], { [`in:${topic}`]: figures.rate });
  const oldest = Math.min(...rows.map((/** @type {any} */ r) => r.oldest_ms || Infinity));
  return html`<${Stats} items=${[{ label: "Messages kept", value: short(figures.messages) }, { label: "In", value: rate(figures.rate), unit: "/s" }, { label: "Oldest", value: Number.isFinite(oldest) ? duration(Date.now() - oldest) : "–" }, { label: "Queues", value: count(rows.length) }, { label: "Groups", value: count(among(parts, "group:").length) }]}/>
    <${Card} title="Messages in, a second"><${Chart} series=${[{ label: "in", color: "--teal", points: into }]}/><//>
    <${Card} title="Queues"><${Table} label="Queues" id=${(/** @type {any} */ r) => `${r.broker}:${r.id}`} rows=${rows} columns=${[
      { name: "broker", title: "Broker", value: (/** @type {any} */ r) => r.broker, show: (/** @type {any} */ r) => html`<a href=${`/brokers/${enc(r.broker)}`}>${r.broker}</a>` },
      { name: "queue", title: "Queue", num: true, value: (/** @type {any} */ r) => r.id, show: (/** @type {any} */ r) => html`<a href=${`/topics/${enc(topic)}/messages?q=${enc(`broker:${r.broker} queue:${r.id}`)}`}>${r.id}</a>` },
      { name: "begin", title: "First", num: true, opt: true, value: (/** @type {any} */ r) => r.begin, show: (/** @type {any} */ r) => count(r.begin) },
      { name: "end", title: "End", num: true, value: (/** @type {any} */ r) => r.end, show: (/** @type {any} */ r) => count(r.end) },
      { name: "messages", title: "Messages", num: true, value: (/** @type {any} */ r) => r.messages, show: (/** @type {any} */ r) => count(r.messages) },
      { name: "oldest", title: "Oldest stored", opt: true, show: (/** @type {any} */ r) => html`<${Time} ms=${r.oldest_ms}/>` },
      { name: "newest", title: "Newest stored", show: (/** @type {any} */ r) => html`<${Time} ms=${r.changed_ms}/>` }]}/><//>`;
}

/** @param {{parts: any}} p */
const TopicGroups = ({ parts }) => html`<${Card}><${Table} label="Groups" id=${(/** @type {any} */ r) => r.name} rows=${among(parts, "group:")} empty=${html`<${Empty} title="No group reads this topic">A consumer of it appears here.<//>`} columns=${[
  { name: "name", title: "Group", show: (/** @type {any} */ r) => html`<a class="name" href=${`/groups/${enc(r.name)}`}>${r.name}</a>` },
  { name: "lag", title: "Behind", num: true, value: (/** @type {any} */ r) => r.lag, show: (/** @type {any} */ r) => r.error ? html`<span class="muted">${r.error}</span>` : count(r.lag) },
  { name: "consumed", title: "Last consumed was stored", num: true, show: (/** @type {any} */ r) => html`<${Time} ms=${r.consumed_ms}/>` }]}/><//>`;

/** @param {{topic: string}} p */
function Producers({ topic }) {
  const { data, error } = useAnswer(`/api/topics/${enc(topic)}/producers`);
  if (!data) return error ? html`<${Trouble} trouble=${error}/>` : html`<${Loading}/>`;
  return html`<p class="note">${data.unknown}</p><${Card}><${Table} label="Producers" id=${(/** @type {any} */ r) => `${r.group} ${r.client_id}`} rows=${data.groups} empty=${html`<${Empty} title="No producer is connected"/>`} columns=${[
    { name: "group", title: "Group", show: (/** @type {any} */ r) => r.group }, { name: "client", title: "Client", show: (/** @type {any} */ r) => html`<span class="mono">${r.client_id}</span>` },
    { name: "address", title: "Address", opt: true, show: (/** @type {any} */ r) => html`<span class="mono">${r.address}</span>` }, { name: "language", title: "Language", opt: true, show: (/** @type {any} */ r) => r.language }]}/><//>`;
}

/** @param {{topic: string}} p */
function Route({ topic }) {
  const { data, error } = useAnswer(`/api/topics/${enc(topic)}/route`);
  if (!data) return error ? html`<${Trouble} trouble=${error}/>` : html`<${Loading}/>`;
  const names = /** @type {any} */ ({ 0: "none", 2: "write", 4: "read", 6: "read and write" });
  return html`<${Card} title="What name servers tell clients"><${Table} label="Route" id=${(/** @type {any} */ r) => r.broker} rows=${data.queues} columns=${[
    { name: "broker", title: "Broker", show: (/** @type {any} */ r) => r.broker },
    { name: "addresses", title: "Addresses", show: (/** @type {any} */ r) => html`<span class="mono">${Object.entries((data.brokers.find((/** @type {any} */ b) => b.name === r.broker) || { addresses: {} }).addresses).map(([id, at]) => `${at}${id === "0" ? "" : ` (slave ${id})`}`).join(", ")}</span>` },
    { name: "read", title: "Read queues", num: true, show: (/** @type {any} */ r) => r.read }, { name: "write", title: "Write queues", num: true, show: (/** @type {any} */ r) => r.write }, { name: "permissions", title: "Permissions", show: (/** @type {any} */ r) => names[r.permissions & 6] }]}/><//>`;
}

/** @param {{it: any}} p */
const Settings = ({ it }) => html`<div class="grid">${it.brokers.map((/** @type {any} */ b) => html`<${Card} key=${b.broker} cls="w6" title=${b.broker} inset><${Facts} items=${[["read queues", b.read_queues], ["write queues", b.write_queues], ["permissions", b.permissions || "none"], ["ordered", b.ordered ? "yes" : "no"], ...Object.entries(b.attributes)]}/><//>`)}
  ${it.order_config && html`<${Card} cls="w6" title="Order of queues" inset><code>${it.order_config}</code><//>`}</div>`;
