// @ts-check
// Brokers, settings, clients, topology, waiting messages, pipelines, lake, trace, audit.
import { html, useState, useMemo, useLive, useAnswer, useAddress, go, withQuery, count, short, rate, bytes, duration, when, enc, some, may } from "/static/lib/core.js";
import { Head, Card, Stats, Chip, Table, Trouble, Loading, Tabs, Facts, Filter, Empty, Ask, Act, Chart, Time, Ago, useHistory } from "/static/lib/parts.js";
import { Brokers as BrokerTable } from "/static/pages/overview.js";
import { Rows } from "/static/pages/messages.js";

export function Brokers() {
  const { parts, trouble } = useLive(["overview"])("overview");
  const rows = Object.keys(parts || {}).filter((it) => it.startsWith("broker:")).map((it) => parts[it]);
  return html`<${Head} title="Brokers" about=${parts ? some(rows.length, "broker") : ""}/><${Trouble} trouble=${trouble}/><${Card}>${parts ? html`<${BrokerTable} rows=${rows}/>` : html`<${Loading}/>`}<//>`;
}

/** @param {{name: string, tab: string}} p */
export function Broker({ name, tab }) {
  const { parts } = useLive(["overview"])("overview");
  const row = parts ? parts[`broker:${name}:0`] : null;
  const { data, error } = useAnswer(`/api/brokers/${enc(name)}`);
  const [into, out] = useHistory([`broker-in:${name}`, `broker-out:${name}`], { [`broker-in:${name}`]: row && row.in_rate, [`broker-out:${name}`]: row && row.out_rate });
  return html`<${Head} title=${name} crumb=${html`<a href="/brokers">Brokers</a>`} about=${row ? html`${row.make || ""} ${row.version || ""} · <span class="mono">${row.address}</span>` : ""}>${row && (row.up ? html`<${Chip} kind="good">${row.role}<//>` : html`<${Chip} kind="bad">silent since <${Time} ms=${row.since_ms}/><//>`)}<//>
    <${Tabs} base=${`/brokers/${enc(name)}`} at=${tab} items=${[["", "Overview"], ["figures", "Figures"], ["settings", "Settings"]]}/>
    ${tab === "settings" ? html`<${BrokerSettings} name=${name}/>` : error ? html`<${Trouble} trouble=${error}/>` : !data ? html`<${Loading}/>` : tab === "figures" ? html`<${Card} inset><${Facts} items=${Object.entries(data.figures).map(([key, value]) => [key, html`<span class="mono">${value}</span>`])}/><//>` : html`
      ${row && row.up && html`<${Stats} items=${[{ label: "In", value: rate(row.in_rate), unit: "/s" }, { label: "Out", value: rate(row.out_rate), unit: "/s" }, { label: "Messages today", value: short(row.messages_today) }, { label: "Log", value: bytes(row.log_bytes) }, { label: "Memory", value: row.memory_bytes === null ? "unknown" : bytes(row.memory_bytes) }, { label: "Running for", value: row.boot_ms ? duration(Date.now() - row.boot_ms) : "–" }]}/>`}
      <${Card} title="Traffic"><${Chart} series=${[{ label: "in", color: "--teal", points: into }, { label: "out", color: "--mark", points: out }]}/><//>
      <div class="grid"><${Card} cls="w6" title="Replication" inset>${data.replication ? html`<${Facts} items=${[["role", data.replication.master ? "master" : "slave"], ["log end", count(data.replication.masterCommitLogMaxOffset ?? data.replication.master_commit_log_max_offset)], ["in sync", count(data.replication.inSyncSlaveNums ?? data.replication.in_sync_slave_nums ?? 0)]]}/>${(data.replication.haConnectionInfo || data.replication.ha_connection_info || []).map((/** @type {any} */ it) => html`<p class="mono small" key=${it.addr}>${it.addr}: ${count(it.diff ?? 0)} bytes behind</p>`)}` : html`<p class="muted">${data.unknown.replication || "unknown"}</p>`}<//>
      <${Card} cls="w6" title="Files and delays" inset><${Facts} items=${["commitLogMinOffset", "commitLogMaxOffset", "commitLogDirCapacity", "consumeQueueDiskRatio", "pageCacheLockTimeMills", "putMessageDistributeTime", "putLatency99", "timerReadBehind", "remainHowManyDataToFlush"].filter((key) => key in data.figures).map((key) => [key, html`<span class="mono small">${data.figures[key]}</span>`])}/><//></div>`}`;
}

/** @param {{name: string}} p */
function BrokerSettings({ name }) {
  const { query } = useAddress();
  const [again, look] = useState(0);
  const { data, error } = useAnswer(`/api/brokers/${enc(name)}/settings`, [again]);
  if (!data) return error ? html`<${Trouble} trouble=${error}/>` : html`<${Loading}/>`;
  const filter = (query.get("filter") || "").toLowerCase();
  const rows = Object.entries(data).filter(([key]) => key.toLowerCase().includes(filter)).map(([key, value]) => ({ key, value }));
  return html`<div class="filter"><${Filter} label="Filter by name"/><${Ask} action="broker.setting" label="Change a setting" title=${`Change a setting of ${name}`} note="Only some settings may change while a broker runs; it refuses the others." fields=${[{ name: "key", title: "Setting", list: Object.keys(data) }, { name: "value", title: "Value" }]} make=${(/** @type {any} */ v) => ({ broker: name, key: v.key.trim(), value: v.value })} onDone=${() => look(again + 1)}/></div>
    <${Card}><${Table} label="Settings" id=${(/** @type {any} */ r) => r.key} rows=${rows} columns=${[{ name: "key", title: "Setting", show: (/** @type {any} */ r) => html`<span class="mono">${r.key}</span>` }, { name: "value", title: "Value", show: (/** @type {any} */ r) => html`<span class="mono">${r.value || html`<span class="muted">empty</span>`}</span>` }]}/><//>`;
}

export function Settings() {
  const { query } = useAddress();
  const { data, error } = useAnswer("/api/settings");
  const [file, drop] = useState(/** @type {any} */ (null));
  const all = query.get("all") === "1", filter = (query.get("filter") || "").toLowerCase();
  const take = async (/** @type {File | undefined} */ it) => { if (it) drop({ name: it.name, values: properties(await it.text()) }); };
  const rows = useMemo(() => !data ? [] : data.rows.map((/** @type {any} */ r) => ({ ...r, file: file ? file.values[r.key] : undefined })).filter((/** @type {any} */ r) => r.key.toLowerCase().includes(filter) && (all || r.differs || r.changed || (file && r.file !== undefined && data.brokers.some((/** @type {string} */ b) => r.values[b] !== r.file)))), [data, file, all, filter]);
  if (!data) return html`<${Head} title="Settings"/>${error ? html`<${Trouble} trouble=${error}/>` : html`<${Loading}/>`}`;
  return html`<${Head} title="Settings" about="All brokers side by side: what differs between them, from the default, or from a file."><label class="btn">Compare with a file<input class="vh" type="file" aria-label="Compare with a file" onChange=${(/** @type {any} */ e) => take(e.target.files[0])}/></label><//>
    ${Object.entries(data.faults).map(([name, text]) => html`<p class="note warn" key=${name}>${name}: ${text}</p>`)}
    <div class="filter"><${Filter} label="Filter by name"/><label class="check"><input type="checkbox" checked=${all} onChange=${(/** @type {any} */ e) => go(withQuery({ all: e.target.checked ? "1" : null }), true)}/>all settings</label>${file && html`<${Chip} plain kind="blue">${file.name}<//><button class="btn tiny" onClick=${() => drop(null)}>Leave the file</button>`}</div>
    <div onDragOver=${(/** @type {Event} */ e) => e.preventDefault()} onDrop=${(/** @type {any} */ e) => { e.preventDefault(); take(e.dataTransfer.files[0]); }}><${Card}><${Table} label="Settings" id=${(/** @type {any} */ r) => r.key} rows=${rows} empty=${html`<${Empty} title="Nothing differs">All brokers have the defaults and agree. Drop a broker.conf here to compare.<//>`} columns=${[
      { name: "key", title: "Setting", show: (/** @type {any} */ r) => html`<span class="mono strong">${r.key}</span>` },
      ...data.brokers.map((/** @type {string} */ b) => ({ name: b, title: b, show: (/** @type {any} */ r) => html`<span class="mono">${r.values[b] ?? html`<span class="muted">has it not</span>`}</span>` })),
      { name: "default", title: "Default", opt: true, show: (/** @type {any} */ r) => html`<span class="mono muted">${r.default ?? "–"}</span>` },
      ...(file ? [{ name: "file", title: file.name, show: (/** @type {any} */ r) => html`<span class="mono">${r.file ?? "–"}</span>` }] : []),
      { name: "why", title: "", show: (/** @type {any} */ r) => html`${r.differs ? html`<${Chip} kind="warn">brokers differ<//>` : ""} ${r.changed ? html`<${Chip} kind="blue">not the default<//>` : ""}` }]}/><//></div>`;
}

/** @param {string} text */
function properties(text) {
  const found = /** @type {Record<string, string>} */ ({});
  for (const line of text.split(/\r?\n/)) { const match = line.match(/^\s*([^#!=:\s][^=:\s]*)\s*[=:]\s*(.*?)\s*$/); if (match) found[match[1]] = match[2]; }
  return found;
}

export function Clients() {
  const { parts, trouble } = useLive(["clients"])("clients");
  const { query } = useAddress();
  const filter = (query.get("filter") || "").toLowerCase();
  const rows = Object.entries(parts || {}).filter(([name]) => name !== "unknown").map(([, it]) => it).filter((/** @type {any} */ it) => `${it.client_id} ${it.group} ${it.address}`.toLowerCase().includes(filter));
  return html`<${Head} title="Clients" about=${parts ? some(rows.length, "connection of a group", "connections of groups") : ""}/><${Trouble} trouble=${trouble || (parts && parts.unknown)}/><div class="filter"><${Filter} label="Filter by client, group or address"/></div>
    <${Card}>${!parts ? html`<${Loading}/>` : html`<${Table} label="Clients" sort="client" id=${(/** @type {any} */ r) => `${r.role} ${r.group} ${r.client_id}`} rows=${rows} empty=${html`<${Empty} title="Nobody is connected">Producers and consumers appear here while they are.<//>`} columns=${[
      { name: "client", title: "Client", value: (/** @type {any} */ r) => r.client_id, show: (/** @type {any} */ r) => html`<span class="mono">${r.client_id}</span>` }, { name: "role", title: "Role", value: (/** @type {any} */ r) => r.role, show: (/** @type {any} */ r) => html`<${Chip} plain kind=${r.role === "producer" ? "blue" : "teal"}>${r.role}<//>` },
      { name: "group", title: "Group", value: (/** @type {any} */ r) => r.group, show: (/** @type {any} */ r) => r.role === "consumer" ? html`<a href=${`/groups/${enc(r.group)}`}>${r.group}</a>` : r.group }, { name: "address", title: "Address", opt: true, value: (/** @type {any} */ r) => r.address, show: (/** @type {any} */ r) => html`<span class="mono">${r.address}</span>` },
      { name: "language", title: "Language", value: (/** @type {any} */ r) => r.language, show: (/** @type {any} */ r) => r.language }, { name: "version", title: "Protocol", num: true, opt: true, value: (/** @type {any} */ r) => r.version, show: (/** @type {any} */ r) => r.version }]}/>`}<//>`;
}

export function Topology() {
  const { parts, trouble } = useLive(["topology"])("topology");
  const it = parts && parts.picture;
  return html`<${Head} title="Topology" about="Who sends, what it goes through, who reads. A line is as wide as its rate; orange ones are behind."/><${Trouble} trouble=${trouble}/><${Card} inset>${!it ? html`<${Loading}/>` : !it.topics.length ? html`<${Empty} title="No topics yet"/>` : html`<${Picture} it=${it}/><p class="muted small" style=${{ marginTop: "8px" }}>${it.unknown}</p>`}<//>`;
}

/** Three columns, drawn here. @param {{it: any}} p */
function Picture({ it }) {
  const W = 1000, box = 220, high = 40, gap = 14;
  const columns = [it.producers.slice(0, 40), it.topics, it.groups], xs = [2, (W - box) / 2, W - box - 2];
  const tall = Math.max(...columns.map((c) => c.length), 1) * (high + gap) + 30;
  const y = (/** @type {number} */ column, /** @type {number} */ n) => 30 + n * (high + gap) + (tall - 30 - columns[column].length * (high + gap)) / 2;
  const at = /** @type {Record<string, number>[]} */ (columns.map((c, column) => Object.fromEntries(c.map((/** @type {any} */ n, /** @type {number} */ number) => [n.name, y(column, number) + high / 2]))));
  const cut = (/** @type {string} */ text) => text.length > 28 ? `${text.slice(0, 27)}…` : text;
  const node = (/** @type {number} */ column, /** @type {any} */ n, /** @type {number} */ number, /** @type {string | null} */ href, /** @type {string} */ sub) => { const inner = html`<title>${n.name}</title><rect x=${xs[column]} y=${y(column, number)} width=${box} height=${high} rx="6"/><text x=${xs[column] + 12} y=${y(column, number) + 17}>${cut(n.name)}</text><text class="sub" x=${xs[column] + 12} y=${y(column, number) + 32}>${sub}</text>`; return href ? html`<a key=${n.name} href=${href}>${inner}</a>` : html`<g key=${n.name}>${inner}</g>`; };
  return html`<div class="scroll"><svg class="picture" viewBox=${`0 0 ${W} ${tall}`} style=${{ minWidth: "640px" }} role="img" aria-label="Producers, topics and groups"><text class="col" x=${xs[0]} y="16">Producer groups</text><text class="col" x=${xs[1]} y="16">Topics</text><text class="col" x=${xs[2]} y="16">Consumer groups</text>
    ${it.links.map((/** @type {any} */ l) => { const x1 = xs[1] + box, x2 = xs[2], y1 = at[1][l.from], y2 = at[2][l.to], mid = (x1 + x2) / 2; return html`<path key=${`${l.from} ${l.to}`} class=${`link ${l.behind > 100 && l.behind > 10 * (l.rate || 0) ? "late" : ""}`} stroke-width=${1.5 + Math.min(14, Math.log2(1 + (l.rate || 0)) * 1.3)} d=${`M${x1},${y1} C${mid},${y1} ${mid},${y2} ${x2},${y2}`}><title>${`${l.from} to ${l.to}: ${rate(l.rate)} a second, ${count(l.behind)} behind`}</title></path>`; })}
    ${columns[0].map((/** @type {any} */ n, /** @type {number} */ i) => node(0, n, i, null, some(n.members, "client")))}${columns[1].map((/** @type {any} */ n, /** @type {number} */ i) => node(1, n, i, `/topics/${enc(n.name)}`, `${rate(n.rate)} /s · ${short(n.messages)} kept`))}${columns[2].map((/** @type {any} */ n, /** @type {number} */ i) => node(2, n, i, `/groups/${enc(n.name)}`, n.behind ? `${short(n.behind)} behind` : n.members ? some(n.members, "member") : "nobody online"))}</svg></div>`;
}

export function Waiting() {
  const { parts, trouble } = useLive(["waiting"])("waiting");
  const messages = parts && parts.messages, halves = parts && parts.halves;
  const now = Date.now();
  return html`<${Head} title="Waiting" about="Delayed messages by due time, and halves of transactions that nobody has decided."/><${Trouble} trouble=${trouble}/>${!parts ? !trouble && html`<${Loading}/>` : html`
    ${messages.unknown ? html`<${Trouble} trouble=${messages.unknown}/>` : html`<${Card} title=${`Delayed messages: ${count(messages.count)}`} acts=${!messages.all_looked && html`<span class="small muted">of the newest ${count(messages.looked)} records</span>`}>
      ${messages.histogram.length > 0 && html`<${Histogram} bins=${messages.histogram}/>`}
      <${Table} label="Delayed messages" id=${(/** @type {any} */ r) => r.offset_id} rows=${messages.rows} empty=${html`<${Empty} title="No message waits">Messages that are sent with a delay are here until they are due.<//>`} columns=${[
        { name: "due", title: "Due", show: (/** @type {any} */ r) => html`<${Time} ms=${r.due_ms} long/>` }, { name: "in", title: "In", num: true, show: (/** @type {any} */ r) => duration(Math.max(0, r.due_ms - now)) }, { name: "topic", title: "Topic", show: (/** @type {any} */ r) => html`<a href=${`/topics/${enc(r.topic)}`}>${r.topic}</a>` }, { name: "kind", title: "By", opt: true, show: (/** @type {any} */ r) => html`<${Chip} plain>${r.kind_of_wait}<//>` },
        { name: "keys", title: "Keys", opt: true, show: (/** @type {any} */ r) => html`<span class="mono">${r.keys.join(" ") || "–"}</span>` }, { name: "body", title: "Body", cls: "clip sample", show: (/** @type {any} */ r) => html`<a href=${`/messages/${r.offset_id}`}>${r.text || r.kind}</a>` }, { name: "act", title: "", show: (/** @type {any} */ r) => r.recall ? html`<${Act} tiny action="timer.recall" request=${() => ({ id: r.offset_id })}>Recall<//>` : "" }]}/><//>`}
    ${halves.unknown ? html`<${Trouble} trouble=${halves.unknown}/>` : html`<${Card} title=${`Open transactions: ${count(halves.count)}`}><${Table} label="Half messages" id=${(/** @type {any} */ r) => r.offset_id} rows=${halves.rows} empty=${html`<${Empty} title="No transaction is open"/>`} columns=${[
        { name: "age", title: "Age", num: true, show: (/** @type {any} */ r) => duration(Math.max(0, now - r.born_ms)) }, { name: "topic", title: "Topic", show: (/** @type {any} */ r) => r.topic }, { name: "group", title: "Producer group", show: (/** @type {any} */ r) => r.group }, { name: "checks", title: "Asked", num: true, show: (/** @type {any} */ r) => some(r.checks, "time") }, { name: "body", title: "Body", cls: "clip sample", show: (/** @type {any} */ r) => r.text || r.kind },
        { name: "act", title: "", show: (/** @type {any} */ r) => html`<span class="acts"><${Act} tiny action="half.end" request=${() => ({ id: r.offset_id, commit: true })}>Commit<//><${Act} tiny danger action="half.end" request=${() => ({ id: r.offset_id, commit: false })}>Roll back<//></span>` }]}/><//>`}`}`;
}

/** @param {{bins: any[]}} p */
function Histogram({ bins }) {
  const top = Math.max(...bins.map((it) => it.count), 1);
  return html`<div class="hist" role="img" aria-label="Messages by due time">${bins.map((it) => html`<div key=${it.at_ms} class=${it.count ? "" : "none"} style=${{ height: `${it.count ? Math.max(4, (it.count / top) * 100) : 2}%` }} title=${`${when(it.at_ms)}: ${count(it.count)}`}></div>`)}</div><div class="hist-ends"><span>${when(bins[0].at_ms)}</span><span>each bar ${duration(bins[0].length_ms)}</span><span>${when(bins[bins.length - 1].at_ms + bins[0].length_ms)}</span></div>`;
}

export function Pipelines() {
  const { data, error } = useAnswer("/api/pipelines");
  return html`<${Head} title="Pipelines" about="Spark pipelines that report to this console."/>${error ? html`<${Trouble} trouble=${error}/>` : !data ? html`<${Loading}/>` : html`${data.unknown && html`<p class="note">${data.unknown}</p>`}<${Card}><${Table} label="Pipelines" id=${(/** @type {any} */ r) => r.name} rows=${data.rows} empty=${html`<${Empty} title="No pipeline has reported">A pipeline writes its report as a JSON file into that directory.<//>`} columns=${[
    { name: "name", title: "Pipeline", show: (/** @type {any} */ r) => html`<span class="strong">${r.name}</span>` }, { name: "state", title: "State", show: (/** @type {any} */ r) => html`<${Chip} kind=${r.error ? "bad" : r.state === "running" ? "good" : ""}>${r.state}<//>` }, { name: "batch", title: "Batch", num: true, show: (/** @type {any} */ r) => r.batch ?? "–" }, { name: "rate", title: "Rows /s", num: true, show: (/** @type {any} */ r) => rate(r.rows_per_s) }, { name: "lag", title: "Lag", num: true, show: (/** @type {any} */ r) => r.lag && typeof r.lag === "object" ? Object.entries(r.lag).map(([t, n]) => `${t} ${short(/** @type {number} */ (n))}`).join(", ") : short(r.lag) }, { name: "changed", title: "Reported", num: true, show: (/** @type {any} */ r) => html`<${Ago} ms=${r.changed_ms}/>` }, { name: "error", title: "Last error", cls: "clip", show: (/** @type {any} */ r) => r.error || html`<span class="muted">none</span>` }]}/><//>`}`;
}

export function Lake() {
  const { data, error } = useAnswer("/api/lake");
  return html`<${Head} title="Lake" about="Archives of topics, and how much newer the live topic is."/>${error ? html`<${Trouble} trouble=${error}/>` : !data ? html`<${Loading}/>` : html`${data.unknown && html`<p class="note">${data.unknown}</p>`}<${Card}><${Table} label="Archives" id=${(/** @type {any} */ r) => `${r.archive} ${r.topic}`} rows=${data.rows} empty=${html`<${Empty} title="No archives">cometmq pipeline run archive writes them.<//>`} columns=${[
    { name: "topic", title: "Topic", show: (/** @type {any} */ r) => html`<a class="name" href=${`/topics/${enc(r.topic)}`}>${r.topic}</a>` }, { name: "archive", title: "Archive", opt: true, show: (/** @type {any} */ r) => r.archive }, { name: "days", title: "Days", num: true, show: (/** @type {any} */ r) => html`${count(r.days)} <span class="muted small">${r.first_day || ""} ${r.last_day && r.last_day !== r.first_day ? `to ${r.last_day}` : ""}</span>` }, { name: "files", title: "Files", num: true, show: (/** @type {any} */ r) => count(r.files) }, { name: "bytes", title: "Size", num: true, show: (/** @type {any} */ r) => bytes(r.bytes) }, { name: "commit", title: "Last commit", num: true, opt: true, show: (/** @type {any} */ r) => html`<${Ago} ms=${r.changed_ms}/>` }, { name: "gap", title: "Behind the live topic", num: true, show: (/** @type {any} */ r) => r.gap_ms === null ? html`<span class="muted">no such topic now</span>` : r.gap_ms ? duration(r.gap_ms) : "nothing" }]}/><//>`}`;
}

export function Trace() {
  const { query } = useAddress();
  const key = query.get("key") || "";
  const [text, put] = useState(key);
  const { data, error } = useAnswer(key ? `/api/trace?key=${enc(key)}` : null);
  return html`<${Head} title="Trace" about="All messages of one key, over all topics, in the order of time."/><form class="filter" role="search" onSubmit=${(/** @type {Event} */ e) => { e.preventDefault(); go(withQuery({ key: text.trim() })); }}><input class="field wide mono" aria-label="Key" placeholder="4711" value=${text} onInput=${(/** @type {any} */ e) => put(e.target.value)}/><button class="btn main-act">Follow</button></form>
    ${error ? html`<${Trouble} trouble=${error}/>` : key && !data ? html`<${Loading}/>` : data ? html`${data.faults.map((/** @type {string} */ it) => html`<p class="note warn" key=${it}>${it}</p>`)}<${Rows} rows=${data.rows} empty=${html`<${Empty} title="No message has this key">${count(data.topics)} topics were asked.<//>`} extra=${[{ name: "topic", title: "Topic", show: (/** @type {any} */ r) => html`<${Chip} plain kind="blue">${r.topic}<//>` }]}/>` : html`<${Card}><${Empty} title="Which key?">An order number, say: whatever its producers gave as key.<//><//>`}`;
}

export function Audit() {
  const { data, error } = useAnswer("/api/audit");
  return html`<${Head} title="Audit" about="Who changed what through this console, newest first."/>${error ? html`<${Trouble} trouble=${error}/>` : !data ? html`<${Loading}/>` : html`<${Card}><${Table} label="Changes" id=${(/** @type {any} */ r) => `${r.at_ms} ${r.action} ${r.result}`} rows=${data} empty=${html`<${Empty} title="Nothing was changed"/>`} columns=${[
    { name: "time", title: "When", show: (/** @type {any} */ r) => html`<${Time} ms=${r.at_ms}/>` }, { name: "who", title: "Who", show: (/** @type {any} */ r) => html`${r.who} <span class="muted small mono opt">${r.from}</span>` }, { name: "what", title: "What", cls: "nowrap", show: (/** @type {any} */ r) => r.plan.title }, { name: "how", title: "Plan", opt: true, cls: "clip", show: (/** @type {any} */ r) => r.plan.sentence }, { name: "result", title: "Result", show: (/** @type {any} */ r) => html`<${Chip} kind=${r.result === "done" ? "good" : r.result === "begun" ? "" : "bad"}>${r.result.slice(0, 60)}<//>` }]}/><//>`}`;
}
export { may };
