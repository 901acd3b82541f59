// @ts-check
// The pieces pages are made of. Text from the cluster is only ever put in as text.
import { html, useState, useEffect, useRef, useMemo, api, go, withQuery, when, ago, duration, count, shared, isUtc, may, useAnswer } from "/static/lib/core.js";

/** @param {{title: any, crumb?: any, about?: any, children?: any}} p */
export function Head({ title, crumb, about, children }) {
  useEffect(() => { document.title = `${typeof title === "string" ? title : "CometMQ"} · CometMQ`; }, [title]);
  return html`<div class="head"><div>${crumb && html`<div class="crumb">${crumb}</div>`}<h1>${title}</h1>${about && html`<p>${about}</p>`}</div>
    ${children && html`<div class="acts">${children}</div>`}</div>`;
}

/** @param {{title?: any, acts?: any, children?: any, cls?: string, inset?: boolean}} p */
export function Card({ title, acts, children, cls, inset }) {
  return html`<section class=${`card ${cls || ""}`}>${(title || acts) && html`<header><h2>${title}</h2>${acts && html`<div class="acts">${acts}</div>`}</header>`}
    ${inset ? html`<div class="in">${children}</div>` : children}</section>`;
}

/** @param {{items: {label: string, value: any, unit?: string, under?: any, level?: string}[]}} p */
export const Stats = ({ items }) => html`<dl class="stats">${items.map((it) => html`<div class=${`stat ${it.level || ""}`} key=${it.label}><dt>${it.label}</dt>
  <dd>${it.value}${it.unit && html`<small>${it.unit}</small>`}</dd>${it.under && html`<div class="under">${it.under}</div>`}</div>`)}</dl>`;

/** @param {{kind?: string, children?: any, plain?: boolean}} p */
export const Chip = ({ kind, children, plain }) => html`<span class=${`chip ${kind || ""} ${plain ? "plain" : ""}`}>${children}</span>`;

/** @param {{title: string, children?: any}} p */
export const Empty = ({ title, children }) => html`<div class="empty"><b>${title}</b>${children}</div>`;

/** @param {{trouble: any}} p */
export const Trouble = ({ trouble }) => trouble ? html`<p class="note warn" role="status">${trouble.message || trouble}</p>` : null;

export const Loading = () => html`<div class="empty" role="status">Loading …</div>`;

/** @param {{ms: number | null | undefined, long?: boolean}} p */
export const Time = ({ ms, long }) => html`<time title=${ms ? new Date(ms).toISOString() : ""} class="nowrap">${when(ms, long)}</time>`;

/** @param {{ms: number | null | undefined}} p */
export const Ago = ({ ms }) => html`<time title=${ms ? when(ms, true) : ""} class="nowrap">${ago(ms)}</time>`;

/** @param {{share: number | null, warn?: number, bad?: number, label: string}} p */
export function Meter({ share, warn = 0.75, bad = 0.9, label }) {
  const level = share === null ? "" : share >= bad ? "bad" : share >= warn ? "warn" : "";
  return html`<div class=${`meter ${level}`} role="img" aria-label=${label}><i style=${{ width: `${Math.min(100, (share || 0) * 100)}%` }}></i></div>`;
}

/** A queue's time from its oldest message to now, and how far somebody is. @param {{begin: number, end: number, at: number, label: string}} p */
export function Span({ begin, end, at, label }) {
  const share = end > begin ? Math.max(0, Math.min(1, (at - begin) / (end - begin))) : 1;
  return html`<div class="span" role="img" aria-label=${label} title=${label}><i style=${{ width: `${share * 100}%` }}></i><b style=${{ left: `${share * 100}%` }}></b></div>`;
}

/** @param {{points: number[][], label: string}} p */
export function Spark({ points, label }) {
  if (!points || points.length < 2) return html`<span class="muted small">–</span>`;
  const t0 = points[0][0], t1 = points[points.length - 1][0];
  const top = Math.max(...points.map((it) => it[1]), 1e-9);
  const at = points.map(([t, v]) => `${(((t - t0) / Math.max(1, t1 - t0)) * 100).toFixed(2)},${(23 - (v / top) * 21).toFixed(2)}`);
  return html`<svg class="spark" viewBox="0 0 100 24" preserveAspectRatio="none" role="img" aria-label=${label}><path class="area" d=${`M0,24 L${at.join(" L")} L100,24 Z`}/><path d=${`M${at.join(" L")}`}/></svg>`;
}

/** @type {Promise<any> | null} */ let plot = null;
function loadPlot() {
  if (!plot) plot = new Promise((done, fail) => {
    const sheet = document.createElement("link");
    sheet.rel = "stylesheet"; sheet.href = "/static/vendor/uplot.css";
    const script = document.createElement("script");
    script.src = "/static/vendor/uplot.js";
    script.onload = () => done(/** @type {any} */ (window).uPlot); script.onerror = fail;
    document.head.append(sheet, script);
  });
  return plot;
}

/** Lines over time. @param {{series: {label: string, color: string, points: number[][]}[], unit?: string}} p */
export function Chart({ series, unit }) {
  const place = useRef(/** @type {any} */ (null));
  const drawn = useRef(/** @type {any} */ (null));
  const data = useMemo(() => {
    const times = [...new Set(series.flatMap((it) => it.points.map((point) => point[0])))].sort((a, b) => a - b);
    return [times, ...series.map((it) => { const by = new Map(it.points.map((point) => [point[0], point[1]])); return times.map((t) => by.has(t) ? by.get(t) : null); })];
  }, [series]);
  useEffect(() => {
    let left = false;
    if (data[0].length < 2) return undefined;
    loadPlot().then((uPlot) => {
      if (left || !place.current) return;
      const style = getComputedStyle(document.documentElement);
      const color = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
      if (drawn.current) { drawn.current.setData(data); return; }
      const axis = { stroke: color("--faint"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false }, font: "11px " + color("--sans") };
      drawn.current = new uPlot({
        width: place.current.clientWidth - 16, height: 180, legend: { show: false }, cursor: { points: { size: 6 }, y: false }, padding: [8, 12, 0, 0],
        tzDate: isUtc() ? (/** @type {number} */ s) => uPlot.tzDate(new Date(s * 1000), "Etc/UTC") : undefined,
        scales: { y: { range: (/** @type {any} */ _u, /** @type {number} */ _low, /** @type {number} */ high) => [0, Math.max(1, high * 1.12)] } },
        axes: [{ ...axis, size: 28, space: 70, values: (/** @type {any} */ u, /** @type {number[]} */ ticks) => ticks.map((t) => when(t * 1000).slice(-8, u.scales.x.max - u.scales.x.min < 600 ? undefined : -3)) }, { ...axis, size: 52, values: (/** @type {any} */ _u, /** @type {number[]} */ ticks) => ticks.map((v) => v >= 1e6 ? `${+(v / 1e6).toFixed(1)} M` : v >= 10000 ? `${+(v / 1000).toFixed(1)} k` : count(+v.toFixed(1))) }],
        series: [{}, ...series.map((it, number) => ({ label: it.label, stroke: color(it.color), width: 1.6, spanGaps: true, fill: number ? undefined : color(it.color) + "1c", points: { show: false } }))],
      }, data, place.current);
    });
    return () => { left = true; };
  }, [data]);
  useEffect(() => {
    const fit = () => { if (drawn.current && place.current) drawn.current.setSize({ width: place.current.clientWidth - 16, height: 180 }); };
    window.addEventListener("resize", fit);
    return () => { window.removeEventListener("resize", fit); if (drawn.current) drawn.current.destroy(); drawn.current = null; };
  }, []);
  if (data[0].length < 2) return html`<${Empty} title="The line begins here">It grows while somebody looks.<//>`;
  return html`<div class="chart" ref=${place} role="img" aria-label=${`${series.map((it) => it.label).join(", ")} over time`} data-last=${series.map((it) => it.points.length ? it.points[it.points.length - 1][1] : "").join(" ")}></div>`;
}

/** What the console remembers of some series, and live values put behind. @param {string[]} names @param {Record<string, number | null>} live */
export function useHistory(names, live) {
  const joined = names.join("\n");
  const query = names.map((name) => `series=${encodeURIComponent(name)}`).join("&");
  const { data } = useAnswer(names.length ? `/api/history?${query}` : null);
  const [added, put] = useState(/** @type {Record<string, number[][]>} */ ({}));
  useEffect(() => put({}), [joined]);
  const values = names.map((name) => live[name]).join(" ");
  useEffect(() => {
    const now = Date.now() / 1000;
    put((before) => {
      const after = { ...before };
      for (const name of names) if (live[name] !== null && live[name] !== undefined) after[name] = [...(after[name] || []), [now, /** @type {number} */ (live[name])]].slice(-900);
      return after;
    });
  }, [values, joined]);
  return useMemo(() => names.map((name) => [...((data && data[name]) || []), ...(added[name] || [])]), [data, added, joined]);
}

/** A table whose rows are in the document only while they can be seen.
 * @param {{columns: any[], rows: any[], id: (row: any) => string, empty?: any, cls?: string, onSeen?: (ids: string[]) => void, onRow?: (row: any) => void, rowClass?: (row: any) => string, sort?: string, label: string}} p */
export function Table({ columns, rows, id, empty, cls, onSeen, onRow, rowClass, sort, label }) {
  const [order, reorder] = useState(() => { const [name, way] = (sort || "").split(" "); return { name, down: way === "down" }; });
  const body = useRef(/** @type {any} */ (null));
  const sorted = useMemo(() => {
    const column = columns.find((it) => it.name === order.name);
    if (!column || !column.value) return rows;
    const key = column.value;
    const copy = rows.map((row, number) => ({ row, number, at: key(row) }));
    copy.sort((a, b) => {
      const x = a.at, y = b.at;
      if (x === y) return a.number - b.number;
      if (x === null || x === undefined) return 1;
      if (y === null || y === undefined) return -1;
      const way = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true });
      return order.down ? -way : way;
    });
    return copy.map((it) => it.row);
  }, [rows, order, columns.length]);
  const [from, to] = useWindow(body, sorted.length, 34);
  const seen = useMemo(() => sorted.slice(from, to), [sorted, from, to]);
  const seenIds = seen.map(id).join("\n");
  useEffect(() => { if (onSeen) onSeen(seenIds ? seenIds.split("\n") : []); }, [seenIds]);
  if (!rows.length) return empty || html`<${Empty} title="Nothing here"/>`;
  return html`<div class="scroll"><table class=${cls || ""} aria-label=${label} aria-rowcount=${sorted.length}>
    <thead><tr>${columns.map((it) => html`<th key=${it.name} class=${`${it.num ? "num" : ""} ${it.opt ? "opt" : ""}`} scope="col" aria-sort=${order.name === it.name ? (order.down ? "descending" : "ascending") : undefined}>
      ${it.value && it.title ? html`<button onClick=${() => reorder({ name: it.name, down: order.name === it.name ? !order.down : Boolean(it.num) })}>${it.title}${order.name === it.name ? (order.down ? " ↓" : " ↑") : ""}</button>` : it.title || html`<span class="vh">${it.name}</span>`}</th>`)}</tr></thead>
    <tbody ref=${body}>
      ${from > 0 && html`<tr class="pad" key="before"><td colspan=${columns.length} style=${{ height: `${from * 34}px` }}></td></tr>`}
      ${seen.map((row) => html`<tr key=${id(row)} class=${rowClass ? rowClass(row) : ""} onClick=${onRow ? (/** @type {any} */ event) => { if (!event.target.closest("a, button, input, dialog")) onRow(row); } : undefined}>${columns.map((it) => html`<td key=${it.name} class=${`${it.num ? "num" : ""} ${it.opt ? "opt" : ""} ${it.cls || ""}`}>${it.show(row)}</td>`)}</tr>`)}
      ${to < sorted.length && html`<tr class="pad" key="after"><td colspan=${columns.length} style=${{ height: `${(sorted.length - to) * 34}px` }}></td></tr>`}
    </tbody></table></div>`;
}

/** Which rows can be seen. @param {{current: any}} body @param {number} length @param {number} height */
function useWindow(body, length, height) {
  const [range, put] = useState([0, 60]);
  useEffect(() => {
    if (length <= 120) return undefined;
    let asked = 0;
    const look = () => {
      asked = 0;
      if (!body.current) return;
      const top = body.current.getBoundingClientRect().top;
      const first = Math.max(0, Math.floor(-top / height) - 8);
      const last = Math.min(length, first + Math.ceil(window.innerHeight / height) + 16);
      put((before) => before[0] === first && before[1] === last ? before : [first, last]);
    };
    const later = () => { if (!asked) asked = requestAnimationFrame(look); };
    look();
    window.addEventListener("scroll", later, { passive: true });
    window.addEventListener("resize", later);
    return () => { window.removeEventListener("scroll", later); window.removeEventListener("resize", later); cancelAnimationFrame(asked); };
  }, [length, height]);
  return length <= 120 ? [0, length] : [Math.min(range[0], Math.max(0, length - 1)), Math.min(range[1], length)];
}

/** @param {{items: [string, string][], at: string, base: string}} p */
export const Tabs = ({ items, at, base }) => html`<nav class="tabs" aria-label="Parts of this page">${items.map(([name, title]) => html`<a key=${name} href=${name ? `${base}/${name}` : base} aria-current=${at === name ? "page" : undefined}>${title}</a>`)}</nav>`;

/** @param {{items: [string, any][]}} p */
export const Facts = ({ items }) => html`<dl class="kv">${items.map(([name, value]) => html`<dt key=${`t${name}`}>${name}</dt><dd key=${`d${name}`}>${value === "" || value === null || value === undefined ? html`<span class="muted">–</span>` : value}</dd>`)}</dl>`;

/** @param {{title: string, onClose: () => void, children?: any, foot?: any}} p */
export function Dialog({ title, onClose, children, foot }) {
  const box = useRef(/** @type {any} */ (null));
  useEffect(() => {
    const before = /** @type {any} */ (document.activeElement);
    if (box.current && !box.current.open) box.current.showModal();
    return () => { if (before && before.focus) before.focus(); };
  }, []);
  return html`<dialog ref=${box} aria-label=${title} onClose=${onClose} onCancel=${onClose}><header><h2>${title}</h2><button class="tool" aria-label="Close" onClick=${onClose}>✕</button></header>
    <div class="in">${children}</div>${foot && html`<footer>${foot}</footer>`}</dialog>`;
}

const SHOWN = { committed: "committed", target: "target", oldest_ms: "oldest of them", due_ms: "due", change: "change" };

/** @param {{columns: string[], rows: any[]}} p */
function PlanTable({ columns, rows }) {
  if (!rows.length) return null;
  return html`<div class="scroll"><table><thead><tr>${columns.map((name) => html`<th key=${name} class=${typeof rows[0][name] === "number" ? "num" : ""}>${/** @type {any} */ (SHOWN)[name] || name.replaceAll("_", " ")}</th>`)}</tr></thead>
    <tbody>${rows.slice(0, 500).map((row, number) => html`<tr key=${number}>${columns.map((name) => html`<td key=${name} class=${typeof row[name] === "number" ? "num" : ""}>${cell(name, row[name])}</td>`)}</tr>`)}</tbody></table></div>`;
}

/** @param {string} name @param {any} value */
function cell(name, value) {
  if (name.endsWith("_ms")) return when(value);
  if (name === "result") return html`<${Chip} kind=${value === "done" ? "good" : value === "failed" ? "bad" : ""}>${value}<//>`;
  if (typeof value === "number") return (name === "change" && value > 0 ? "+" : "") + (value === -1 && name !== "change" ? "none" : count(value));
  return value === null || value === undefined ? "–" : String(value);
}

/** Shows what a change would do, and does it. @param {{request: any, onClose: () => void, onDone?: (result: any) => void, danger?: boolean}} p */
export function Plan({ request, onClose, onDone, danger }) {
  const [plan, put] = useState(/** @type {any} */ (null));
  const [error, fail] = useState(/** @type {any} */ (null));
  const [result, end] = useState(/** @type {any} */ (null));
  const [busy, work] = useState(false);
  const look = () => { fail(null); put(null); api("/api/plans", request).then(put, fail); };
  useEffect(look, []);
  const apply = () => {
    work(true);
    api(`/api/plans/${plan.id}/apply`, {}).then(end, fail).finally(() => work(false));
  };
  const close = () => { if (busy) return; onClose(); if (result && onDone) onDone(result); };
  const foot = result ? html`<button class="btn main-act" onClick=${close}>Close</button>`
    : html`<button class="btn" onClick=${close}>Cancel</button>${error ? html`<button class="btn" onClick=${look}>Look again</button>`
      : html`<button class=${`btn main-act ${danger ? "danger" : ""}`} disabled=${!plan || plan.does_nothing || busy} onClick=${apply}>${busy ? "Working …" : "Do it"}</button>`}`;
  return html`<${Dialog} title=${result ? `${result.title}: ${result.result}` : plan ? plan.title : "What would happen"} onClose=${close} foot=${foot}>
    ${error && html`<p class="note bad" role="alert">${error.message}</p>`}
    ${error && error.content && error.content.changed && html`<${PlanTable} columns=${["what", "before", "after"]} rows=${error.content.changed.map((/** @type {any} */ it) => ({ what: it.what, before: JSON.stringify(it.before), after: JSON.stringify(it.after) }))}/>`}
    ${!plan && !error && html`<${Loading}/>`}
    ${plan && !result && !error && html`<p class="strong">${plan.sentence}</p>${plan.warnings.map((/** @type {string} */ it) => html`<p class="note warn" key=${it}>${it}</p>`)}<${PlanTable} columns=${plan.columns} rows=${plan.rows}/>`}
    ${result && html`<${PlanTable} columns=${result.rows.length ? Object.keys(result.rows[0]) : []} rows=${result.rows}/>`}<//>`;
}

/** A button that opens a plan. @param {{action: string, request: () => any, children?: any, danger?: boolean, onDone?: (result: any) => void, tiny?: boolean, disabled?: boolean}} p */
export function Act({ action, request, children, danger, onDone, tiny, disabled }) {
  const [open, put] = useState(/** @type {any} */ (null));
  if (!may(action)) return null;
  return html`<button class=${`btn ${danger ? "danger" : ""} ${tiny ? "tiny" : ""}`} disabled=${disabled} onClick=${(/** @type {Event} */ event) => { event.stopPropagation(); put(request()); }}>${children}</button>
    ${open && html`<${Plan} request=${{ action, ...open }} danger=${danger} onClose=${() => put(null)} onDone=${onDone}/>`}`;
}

/** A button that opens a form, whose answer becomes a plan. @param {{action: string, title: string, label: any, fields: any[], make: (values: any) => any, onDone?: (r: any) => void, main?: boolean, danger?: boolean, start?: any, note?: any}} p */
export function Ask({ action, title, label, fields, make, onDone, main, danger, start, note }) {
  const [open, put] = useState(/** @type {any} */ (null));
  const [plan, see] = useState(/** @type {any} */ (null));
  const [fault, blame] = useState("");
  if (!may(action)) return null;
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    try { const made = make(open); blame(""); put(null); see({ action, ...made }); } catch (error) { blame(/** @type {Error} */ (error).message); }
  };
  return html`<button class=${`btn ${main ? "main-act" : ""} ${danger ? "danger" : ""}`} onClick=${() => put({ ...Object.fromEntries(fields.map((it) => [it.name, it.start ?? ""])), ...(start || {}) })}>${label}</button>
    ${open && html`<${Dialog} title=${title} onClose=${() => put(null)} foot=${html`<button class="btn" onClick=${() => put(null)}>Cancel</button><button class="btn main-act" onClick=${submit}>Preview</button>`}>
      <form class="form" onSubmit=${submit}>${note && html`<p class="soft">${note}</p>`}${fields.filter((it) => !it.when || it.when(open)).map((it) => html`<${Field} key=${it.name} field=${it} value=${open[it.name]} onValue=${(/** @type {any} */ value) => put({ ...open, [it.name]: value })}/>`)}
      ${fault && html`<p class="note bad" role="alert">${fault}</p>`}<button class="vh" type="submit">Preview</button></form><//>`}
    ${plan && html`<${Plan} request=${plan} danger=${danger} onClose=${() => see(null)} onDone=${onDone}/>`}`;
}

/** @param {{field: any, value: any, onValue: (value: any) => void}} p */
function Field({ field, value, onValue }) {
  const set = (/** @type {any} */ event) => onValue(field.kind === "flag" ? event.target.checked : event.target.value);
  if (field.kind === "flag") return html`<label class="check"><input type="checkbox" name=${field.name} checked=${value} onChange=${set}/>${field.title}</label>`;
  const input = field.kind === "choice" ? html`<select class="field" name=${field.name} value=${value} onChange=${set}>${field.choices.map((/** @type {any} */ it) => html`<option key=${it[0]} value=${it[0]} selected=${it[0] === value}>${it[1]}</option>`)}</select>`
    : field.kind === "text" ? html`<textarea class="field" name=${field.name} rows="8" value=${value} onInput=${set}></textarea>`
    : html`<input class="field" name=${field.name} type=${field.kind || "text"} list=${field.list ? `list-${field.name}` : undefined} value=${value} placeholder=${field.hint || ""} onInput=${set}/>`;
  return html`<label class="row"><span>${field.title}</span>${input}${field.list && html`<datalist id=${`list-${field.name}`}>${field.list.map((/** @type {string} */ it) => html`<option key=${it} value=${it}/>`)}</datalist>`}</label>`;
}

/** @param {{text: string, children?: any}} p */
export function Copy({ text, children }) {
  return html`<button class="btn tiny" onClick=${() => navigator.clipboard.writeText(text).then(() => shared.toast("copied"), () => shared.toast("this browser lets nobody copy here"))}>${children || "Copy"}</button>`;
}

/** A box that filters what is shown, kept in the address. @param {{name?: string, label: string}} p */
export function Filter({ name = "filter", label }) {
  const at = new URLSearchParams(location.search).get(name) || "";
  return html`<input class="field wide" type="search" aria-label=${label} placeholder=${label} value=${at} onInput=${(/** @type {any} */ event) => go(withQuery({ [name]: event.target.value }), true)}/>`;
}

export { duration };
