// @ts-check
// The message browser: one box, which is the address; a scan that says how far it came; a live tail.
import { html, useState, useEffect, useRef, useAddress, go, withQuery, shared, count, short, bytes, enc, some } from "/static/lib/core.js";
import { Card, Chip, Table, Empty, Time, Meter, Trouble } from "/static/lib/parts.js";

const TAIL_KEPT = 1000;

/** @param {{topic: string}} p */
export default function Messages({ topic }) {
  const { query } = useAddress();
  const q = query.get("q") || "", tailing = query.get("tail") === "1";
  return html`<${Box} q=${q}/>${tailing ? html`<${Tail} key=${q} topic=${topic} q=${q}/>` : html`<${Scan} key=${q} topic=${topic} q=${q}/>`}`;
}

/** @param {{q: string}} p */
function Box({ q }) {
  const [text, put] = useState(q);
  const [open, see] = useState(false);
  const box = useRef(/** @type {any} */ (null));
  useEffect(() => put(q), [q]);
  const last = text.split(/\s/).pop() || "";
  const words = (shared.me ? shared.me.completions : []).filter((/** @type {string} */ it) => it.startsWith(last) && it !== last);
  const take = (/** @type {string} */ word) => { put(text.slice(0, text.length - last.length) + word); if (box.current) box.current.focus(); };
  const submit = (/** @type {Event} */ event) => { event.preventDefault(); see(false); go(withQuery({ q: text.trim(), tail: null })); };
  return html`<form class="filter" role="search" onSubmit=${submit}><div class="seek" style=${{ flex: "1 1 320px" }}>
      <svg viewBox="0 0 16 16"><circle cx="7" cy="7" r="4.5"/><path d="M10.5 10.5 14 14"/></svg>
      <input ref=${box} class="mono" name="q" aria-label="Search messages" autocomplete="off" spellcheck="false" placeholder="4711   tag:created   prop.city:Kiel   json.price>100   from:-2h" value=${text} onInput=${(/** @type {any} */ e) => { put(e.target.value); see(true); }} onFocus=${() => see(true)} onBlur=${() => window.setTimeout(() => see(false), 150)}/>
      ${open && words.length > 0 && html`<div class="menu" role="listbox">${words.map((/** @type {string} */ it) => html`<button type="button" role="option" key=${it} onClick=${() => take(it)}><span class="mono">${it}</span><span class="muted small">${HELP[it.replace(/[:.].*/, "")] || ""}</span></button>`)}</div>`}</div>
    <button class="btn main-act">Search</button>
    <a class="btn" href=${withQuery({ tail: new URLSearchParams(location.search).get("tail") === "1" ? null : "1" })}>${new URLSearchParams(location.search).get("tail") === "1" ? "Stop the tail" : "Live tail"}</a></form>`;
}

const HELP = /** @type {Record<string, string>} */ ({ key: "a key, by the index", id: "either form of id", tag: "filtered by the broker", prop: "prop.NAME:VALUE", body: "text in the body", json: "json.PATH>100", from: "and later", to: "and before", queue: "one queue", offset: "and on", broker: "one broker" });

/** @param {{topic: string, q: string}} p */
function Scan({ topic, q }) {
  const [state, put] = useState(/** @type {any} */ ({ rows: [], looked: 0, total: 0, cursor: null, end: false, busy: true, error: null }));
  const source = useRef(/** @type {EventSource | null} */ (null));
  const run = (/** @type {string | null} */ cursor) => {
    if (source.current) source.current.close();
    const before = cursor ? state.looked : 0;
    put((/** @type {any} */ it) => ({ ...it, busy: true, error: null }));
    const opened = new EventSource(`/api/topics/${enc(topic)}/scan?q=${enc(q)}&limit=100${cursor ? `&cursor=${enc(cursor)}` : ""}`);
    source.current = opened;
    opened.addEventListener("progress", (event) => {
      const it = JSON.parse(/** @type {MessageEvent} */ (event).data);
      put((/** @type {any} */ old) => ({ ...old, rows: joined(old.rows, it.rows), looked: before + it.looked, total: cursor ? old.total : Math.max(old.total, it.total), cursor: it.cursor, end: it.end }));
    });
    opened.addEventListener("trouble", (event) => { opened.close(); put((/** @type {any} */ old) => ({ ...old, busy: false, error: JSON.parse(/** @type {MessageEvent} */ (event).data).cause })); });
    opened.addEventListener("done", () => { opened.close(); put((/** @type {any} */ old) => ({ ...old, busy: false })); });
    opened.onerror = () => {
      if (opened.readyState === EventSource.CLOSED && source.current !== opened) return;
      opened.close();
      fetch(`/api/topics/${enc(topic)}/messages?q=${enc(q)}&limit=1`).then((r) => r.json()).then((it) => put((/** @type {any} */ old) => ({ ...old, busy: false, error: it.error || "the stream broke: search again" })), () => put((/** @type {any} */ old) => ({ ...old, busy: false, error: "the console does not answer" })));
    };
  };
  const stop = () => { if (source.current) source.current.close(); put((/** @type {any} */ it) => ({ ...it, busy: false, stopped: true })); };
  useEffect(() => { run(null); return () => { if (source.current) source.current.close(); }; }, []);
  const share = state.total ? Math.min(1, state.looked / state.total) : state.end ? 1 : 0;
  return html`<${Trouble} trouble=${state.error}/><div class="progress" role="status"><${Meter} share=${share} warn=${2} bad=${2} label="how far the search came"/>
      <span>${state.end && !state.looked && !state.rows.length ? "nothing to look at" : html`looked at <b>${count(Math.min(state.looked, Math.max(state.total, state.looked)))}</b> of about ${short(state.total)}, <b>${count(state.rows.length)}</b> ${q ? "found" : "shown"}`}</span>
      ${state.busy ? html`<button class="btn tiny" onClick=${stop}>Stop</button>` : state.end ? html`<span class="muted">that was all</span>` : state.cursor ? html`<button class="btn tiny" onClick=${() => run(state.cursor)}>Go on</button>` : state.stopped ? html`<button class="btn tiny" onClick=${() => run(null)}>Begin again</button>` : null}
      ${shared.me && shared.me.export && state.rows.length > 0 && html`<a class="btn tiny" download href=${`/api/topics/${enc(topic)}/export?q=${enc(q)}`}>Export</a>`}</div>
    <${Rows} rows=${state.rows} empty=${state.busy ? html`<${Empty} title="Looking …"/>` : state.end ? html`<${Empty} title=${q ? "Nothing found" : "No messages"}>${q ? "Every message that the search covers was looked at." : "The topic is empty."}<//>` : html`<${Empty} title="Nothing found so far">The search stopped before it came to the end: go on.<//>`}/>`;
}

/** @param {any[]} old @param {any[]} fresh */
function joined(old, fresh) {
  const known = new Set(old.map((it) => it.offset_id));
  return [...old, ...fresh.filter((it) => !known.has(it.offset_id))];
}

/** @param {{topic: string, q: string}} p */
function Tail({ topic, q }) {
  const [state, put] = useState(/** @type {any} */ ({ rows: [], seen: 0, skipped: 0 }));
  const [paused, pause] = useState(false);
  const [error, blame] = useState(/** @type {any} */ (null));
  const held = useRef(false);
  held.current = paused;
  useEffect(() => {
    const source = new EventSource(`/api/topics/${enc(topic)}/tail?q=${enc(q)}`);
    /** @type {any[]} */ let waiting = [];
    let seen = 0, skipped = 0, asked = 0;
    const draw = () => {
      asked = 0;
      const fresh = waiting.reverse(); waiting = [];
      const s = seen, k = skipped; seen = skipped = 0;
      put((/** @type {any} */ it) => ({ rows: [...fresh, ...it.rows].slice(0, TAIL_KEPT), seen: it.seen + s, skipped: it.skipped + k }));
    };
    source.addEventListener("begin", () => put((/** @type {any} */ it) => ({ ...it, on: true })));
    source.addEventListener("rows", (event) => {
      const it = JSON.parse(/** @type {MessageEvent} */ (event).data);
      seen += it.seen;
      if (held.current) skipped += it.seen; else { skipped += it.skipped; waiting.push(...it.rows); }
      if (!asked) asked = requestAnimationFrame(draw);
    });
    source.addEventListener("trouble", (event) => blame(JSON.parse(/** @type {MessageEvent} */ (event).data).cause));
    return () => { source.close(); cancelAnimationFrame(asked); };
  }, []);
  return html`<${Trouble} trouble=${error}/><div class="progress" role="status"><${Chip} kind=${paused ? "warn" : "good"}>${paused ? "paused" : state.on ? "live" : "connecting"}<//>
      <span><b data-seen=${state.seen}>${count(state.seen)}</b> came, <b data-skipped=${state.skipped}>${count(state.skipped)}</b> not drawn</span><button class="btn tiny" onClick=${() => pause(!paused)}>${paused ? "Go on" : "Pause"}</button></div>
    <${Rows} rows=${state.rows} empty=${html`<${Empty} title="Waiting for messages">New ones appear here, newest first.<//>`}/>`;
}

/** @param {{rows: any[], empty: any, extra?: any[], open?: boolean}} p */
export function Rows({ rows, empty, extra = [], open = true }) {
  return html`<${Card}><${Table} label="Messages" cls="msg" id=${(/** @type {any} */ r) => r.offset_id} rows=${rows} empty=${empty} onRow=${open ? (/** @type {any} */ r) => go(address(r)) : undefined} columns=${[...extra,
    { name: "time", title: "Stored", show: (/** @type {any} */ r) => html`<a class="name" href=${address(r)}><${Time} ms=${r.stored_ms}/></a>` },
    { name: "queue", title: "Queue", num: true, opt: true, show: (/** @type {any} */ r) => html`<span class="muted">${r.broker}</span> ${r.queue}` },
    { name: "offset", title: "Offset", num: true, opt: true, show: (/** @type {any} */ r) => count(r.offset) },
    { name: "tag", title: "Tag", show: (/** @type {any} */ r) => r.tag ? html`<${Chip} plain kind="teal">${r.tag.slice(0, 40)}<//>` : html`<span class="muted">–</span>` },
    { name: "keys", title: "Keys", show: (/** @type {any} */ r) => html`<span class="mono">${r.keys.join(" ").slice(0, 60) || "–"}</span>` },
    { name: "size", title: "Size", num: true, opt: true, show: (/** @type {any} */ r) => bytes(r.size) },
    { name: "body", title: "Body", cls: "clip sample", show: (/** @type {any} */ r) => r.kind === "hidden" ? html`<span class="muted">bodies are not shown here</span>` : r.text || html`<span class="muted">${r.kind}</span>` }]}/><//>`;
}

/** @param {any} r */
export const address = (r) => `/messages/${enc(r.id && r.id !== r.offset_id && !r.stored_in.startsWith("%") && r.stored_in === r.topic ? r.id : r.offset_id)}?topic=${enc(r.stored_in)}`;
export { some };
