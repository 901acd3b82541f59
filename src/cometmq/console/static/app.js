// @ts-check
// The frame: navigation, search, keys, log-in, and which page an address means.
import { html, render, useState, useEffect, useRef, useAddress, useLive, api, go, shared, switchUtc, isUtc, connection, ago, enc } from "/static/lib/core.js";
import { Dialog, Empty, Head } from "/static/lib/parts.js";
import Overview from "/static/pages/overview.js";

/** @type {Record<string, () => Promise<any>>} */
const FILES = {
  topics: () => import("/static/pages/topics.js"), groups: () => import("/static/pages/groups.js"), letters: () => import("/static/pages/letters.js"), message: () => import("/static/pages/message.js"), cluster: () => import("/static/pages/cluster.js"),
};
/** @type {[RegExp, string, (m: any, it: any) => any][]} */
const PAGES = [
  [/^\/topics\/([^/]+)(?:\/([a-z]+))?$/, "topics", (m, it) => html`<${m.TopicPage} key=${it[1]} topic=${it[1]} tab=${it[2] || ""}/>`],
  [/^\/topics$/, "topics", (m) => html`<${m.default}/>`],
  [/^\/groups\/([^/]+)(?:\/([a-z]+))?$/, "groups", (m, it) => html`<${m.GroupPage} key=${it[1]} group=${it[1]} tab=${it[2] || ""}/>`],
  [/^\/groups$/, "groups", (m) => html`<${m.default}/>`],
  [/^\/dlq$/, "letters", (m) => html`<${m.default}/>`],
  [/^\/messages\/([^/]+)$/, "message", (m, it) => html`<${m.default} key=${it[1]} id=${it[1]}/>`],
  [/^\/brokers\/([^/]+)(?:\/([a-z]+))?$/, "cluster", (m, it) => html`<${m.Broker} key=${it[1]} name=${it[1]} tab=${it[2] || ""}/>`],
  .../** @type {any[]} */ (["brokers", "settings", "clients", "topology", "waiting", "pipelines", "lake", "trace", "audit"].map((name) => [new RegExp(`^/${name}$`), "cluster", (/** @type {any} */ m) => html`<${m[name[0].toUpperCase() + name.slice(1)]}/>`])),
];
const ICONS = /** @type {Record<string, string>} */ ({
  overview: "M2 9.5 8 3l6 6.5M4 8v5.5h8V8", topology: "M3 4h3v3H3zM10 9.5h3v3h-3zM10 3h3v3h-3zM6 5.5h4M6 6.5l4 4", topics: "M2.5 4h11M2.5 8h11M2.5 12h7", dlq: "M2.5 4h11v8h-11zM2.5 4.5 8 9l5.5-4.5M5 2l6 0", waiting: "M8 4.5V8l2.5 1.5M8 2a6 6 0 1 1 0 12A6 6 0 0 1 8 2", trace: "M3 12.5c3 0 3-9 6-9h4M11 1.5l2.2 2-2.2 2M3 12.5h.01",
  groups: "M5.5 7.5a2.3 2.3 0 1 0 0-4.6 2.3 2.3 0 0 0 0 4.6M1.5 13c0-2.6 1.8-4 4-4s4 1.4 4 4M11 7.3a2 2 0 1 0-.6-3.9M11.5 9c1.8.2 3 1.5 3 3.8", clients: "M2 3.5h12v8H2zM6 14h4", brokers: "M2.5 3h11v4h-11zM2.5 9h11v4h-11zM5 5h.01M5 11h.01", settings: "M2.5 5h6M12 5h1.500M2.5 11h2M8 11h5.500M10.2 3.300v3.400M6.2 9.300v3.4", pipelines: "M2 5h5l2 6h5M11.5 8.5 14 11l-2.5 2.5", lake: "M2 5c0-3 12-3 12 0s-12 3-12 0M2 5v6c0 3 12 3 12 0V5", audit: "M4 2.500h8v11H4zM6 5.500h4M6 8h4M6 10.500h2",
});
/** @type {[string, [string, string, string][]][]} */
const NAVIGATION = [
  ["", [["/", "Overview", "overview"], ["/topology", "Topology", "topology"]]],
  ["Messages", [["/topics", "Topics", "topics"], ["/dlq", "Dead letters", "dlq"], ["/waiting", "Waiting", "waiting"], ["/trace", "Trace", "trace"]]],
  ["Readers", [["/groups", "Groups", "groups"], ["/clients", "Clients", "clients"]]],
  ["Cluster", [["/brokers", "Brokers", "brokers"], ["/settings", "Settings", "settings"], ["/pipelines", "Pipelines", "pipelines"], ["/lake", "Lake", "lake"], ["/audit", "Audit", "audit"]]],
];
const KEYS = [["/", "search"], ["g o", "overview"], ["g t", "topics"], ["g g", "groups"], ["g d", "dead letters"], ["g w", "waiting"], ["g b", "brokers"], ["?", "this help"]];
const JUMPS = /** @type {Record<string, string>} */ ({ o: "/", t: "/topics", g: "/groups", d: "/dlq", w: "/waiting", b: "/brokers" });

/** @type {Record<string, any>} */ const loaded = {};

function Page() {
  const { path } = useAddress();
  const [, again] = useState(0);
  if (path === "/") return html`<${Overview}/>`;
  for (const [pattern, file, show] of PAGES) {
    const found = path.match(pattern);
    if (!found) continue;
    if (!loaded[file]) { FILES[file]().then((m) => { loaded[file] = m; again((n) => n + 1); }); return null; }
    const parts = found.map((it) => { try { return it === undefined ? it : decodeURIComponent(it); } catch { return it; } });
    return show(loaded[file], parts);
  }
  return html`<${Head} title="There is no such page"/><div class="card"><${Empty} title=${path}><a href="/">Overview</a><//></div>`;
}

function Frame() {
  const { path } = useAddress();
  const [open, see] = useState(false);
  const [help, ask] = useState(false);
  const [text, toast] = useState("");
  useEffect(() => see(false), [path]);
  useEffect(() => { shared.toast = (it) => { toast(it); window.setTimeout(() => toast(""), 2500); }; }, []);
  useKeys(() => ask(true));
  useLive([]);
  const me = shared.me;
  return html`<a class="skip" href="#content">Skip to the content</a><div class="frame"><nav class=${`rail ${open ? "open" : ""}`} aria-label="Pages"><a class="brand" href="/"><img src="/static/icon.svg" alt=""/>CometMQ</a>
      ${NAVIGATION.map(([title, items]) => html`${title && html`<h3 key=${title}>${title}</h3>`}${items.filter(([href]) => href !== "/audit" || me.role !== "viewer").map(([href, name, icon]) => html`<a class="item" key=${href} href=${href} aria-current=${href === "/" ? (path === "/" ? "page" : undefined) : path === href || path.startsWith(`${href}/`) || (href === "/topics" && path.startsWith("/messages/")) ? "page" : undefined}><svg viewBox="0 0 16 16" aria-hidden="true"><path d=${ICONS[icon]}/></svg>${name}</a>`)}`)}
      <div class="foot"><span class="mono">${me.namesrv}</span>${me.read_only ? html`<span>read-only</span>` : ""}${me.auth !== "none" ? html`<span>${me.name}, ${me.role}</span>${me.auth !== "header" && html`<button class="btn tiny" onClick=${() => api("/api/logout", {}).then(() => location.assign("/"))}>Log out</button>`}` : ""}</div></nav>
    <div class="main"><header class="top"><button class="tool burger" aria-label="Pages" aria-expanded=${open} onClick=${() => see(!open)}><svg viewBox="0 0 16 16"><path d="M2 4h12M2 8h12M2 12h12"/></svg></button><${Seek}/><span class="grow"></span>
        ${connection.lostAt ? html`<span class="chip bad" role="status">not connected since ${ago(connection.lostAt)}</span>` : null}
        <button class="tool opt" onClick=${switchUtc} aria-pressed=${isUtc()} title="Times in UTC or where you are">${isUtc() ? "UTC" : "local time"}</button><${Theme}/><button class="tool opt" aria-label="Keys" onClick=${() => ask(true)}><kbd>?</kbd></button></header>
      <main class="page" id="content"><${Page}/></main></div></div>
    ${help && html`<${Dialog} title="Keys" onClose=${() => ask(false)}><dl class="kv">${KEYS.map(([key, what]) => html`<dt key=${key}>${key.split(" ").map((it) => html`<kbd>${it}</kbd> `)}</dt><dd>${what}</dd>`)}</dl><p class="soft">Everything here is a request that you can make yourself: <a href="/api/openapi.json" target="_blank">/api/openapi.json</a></p><//>`}
    ${text && html`<div class="toast" role="status">${text}</div>`}`;
}

function Theme() {
  const root = document.documentElement;
  const isDark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const [dark, put] = useState(isDark());
  const turn = () => { root.dataset.theme = dark ? "light" : "dark"; localStorage.setItem("theme", root.dataset.theme); put(!dark); };
  return html`<button class="tool" aria-label=${dark ? "Light colours" : "Dark colours"} onClick=${turn}><svg viewBox="0 0 16 16"><path d=${dark ? "M8 1.5v1.500M8 13v1.500M1.5 8H3M13 8h1.500M3.4 3.400l1 1M11.6 11.600l1 1M12.6 3.400l-1 1M4.4 11.600l-1 1M8 5a3 3 0 1 1 0 6 3 3 0 0 1 0-6" : "M13.5 9.500A6 6 0 0 1 6.5 2.500a6 6 0 1 0 7 7"}/></svg></button>`;
}

/** Goes to a topic, a group, a message, or follows a key. */
function Seek() {
  const [text, put] = useState("");
  const [names, know] = useState(/** @type {any[]} */ ([]));
  const [open, see] = useState(false);
  const [chosen, choose] = useState(0);
  const box = useRef(/** @type {any} */ (null));
  const load = () => { see(true); if (!names.length) Promise.all([api("/api/topics"), api("/api/groups")]).then(([topics, groups]) => know([...Object.values(topics).map((/** @type {any} */ it) => ({ name: it.name, kind: "topic", href: `/topics/${enc(it.name)}` })), ...Object.values(groups).map((/** @type {any} */ it) => ({ name: it.name, kind: "group", href: `/groups/${enc(it.name)}` }))]), () => {}); };
  const lower = text.trim().toLowerCase();
  const isId = /^[0-9a-f]{32}$|^[0-9a-f]{40}$/.test(lower);
  const found = lower ? [...(isId ? [{ name: "open this message", kind: "id", href: `/messages/${enc(text.trim())}` }] : []), ...names.filter((it) => it.name.toLowerCase().includes(lower)).sort((a, b) => a.name.length - b.name.length).slice(0, 9), { name: `follow the key ${text.trim()}`, kind: "key", href: `/trace?key=${enc(text.trim())}` }] : [];
  const take = (/** @type {any} */ it) => { if (it) { go(it.href); put(""); see(false); if (box.current) box.current.blur(); } };
  const keyed = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") { event.preventDefault(); choose((chosen + (event.key === "ArrowDown" ? 1 : found.length - 1)) % Math.max(1, found.length)); }
    if (event.key === "Enter") { event.preventDefault(); take(found[chosen]); }
    if (event.key === "Escape") { put(""); see(false); box.current.blur(); }
  };
  return html`<div class="seek" role="search"><svg viewBox="0 0 16 16" aria-hidden="true"><circle cx="7" cy="7" r="4.5"/><path d="M10.5 10.5 14 14"/></svg><input id="seek" ref=${box} aria-label="Go to a topic, group, message or key" placeholder="Topic, group, message id or key" autocomplete="off" spellcheck="false" value=${text} onFocus=${load} onBlur=${() => window.setTimeout(() => see(false), 150)} onInput=${(/** @type {any} */ e) => { put(e.target.value); choose(0); see(true); }} onKeyDown=${keyed}/><kbd aria-hidden="true">/</kbd>
    ${open && found.length > 0 && html`<div class="menu" role="listbox">${found.map((it, number) => html`<button key=${`${it.kind} ${it.name}`} role="option" aria-selected=${number === chosen} onMouseDown=${(/** @type {Event} */ e) => e.preventDefault()} onClick=${() => take(it)}>${it.name}<span class="muted small">${it.kind}</span></button>`)}</div>`}</div>`;
}

/** @param {() => void} help */
function useKeys(help) {
  useEffect(() => {
    let before = "";
    const keyed = (/** @type {KeyboardEvent} */ event) => {
      const at = /** @type {HTMLElement} */ (event.target);
      if (event.metaKey || event.ctrlKey || event.altKey || at.closest("input, textarea, select, dialog")) return;
      if (event.key === "/") { event.preventDefault(); const box = /** @type {HTMLElement | null} */ (document.querySelector("main [name=q]") || document.getElementById("seek")); if (box) box.focus(); }
      else if (event.key === "?") help();
      else if (before === "g" && JUMPS[event.key]) { go(JUMPS[event.key]); before = ""; return; }
      before = event.key;
    };
    document.addEventListener("keydown", keyed);
    return () => document.removeEventListener("keydown", keyed);
  }, []);
}

/** @param {{auth: string}} p */
function Door({ auth }) {
  const [error, blame] = useState("");
  const enter = (/** @type {any} */ event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    api("/api/login", Object.fromEntries(form)).then(() => location.reload(), (it) => blame(it.message));
  };
  return html`<div class="door"><form class="card" onSubmit=${enter}><a class="brand" href="/"><img src="/static/icon.svg" alt=""/>CometMQ</a>
    ${auth === "header" ? html`<p class="note">The proxy in front of this console did not say who you are.</p>` : html`${auth === "token" ? html`<label class="row"><span>Token, from the line that the console printed</span><input class="field" name="token" type="password" autocomplete="current-password" required/></label>` : html`<label class="row"><span>Name</span><input class="field" name="name" autocomplete="username" required/></label><label class="row"><span>Password</span><input class="field" name="password" type="password" autocomplete="current-password" required/></label>`}
    ${error && html`<p class="note bad" role="alert">${error}</p>`}<button class="btn main-act">Log in</button>`}</form></div>`;
}

async function begin() {
  const place = /** @type {HTMLElement} */ (document.getElementById("app"));
  const query = new URLSearchParams(location.search);
  const token = query.get("token");
  if (token) {  // once; the address forgets it
    query.delete("token");
    history.replaceState(null, "", location.pathname + (query.toString() ? `?${query}` : ""));
    await api("/api/login", { token }).catch(() => {});
  }
  const show = async () => {
    const me = await api("/api/me");
    shared.me = me;
    place.textContent = "";
    render(me.role ? html`<${Frame}/>` : html`<${Door} auth=${me.auth}/>`, place);
  };
  shared.tellOut = () => { location.reload(); shared.tellOut = () => {}; };
  await show().catch((error) => { place.textContent = error.message; });
}
begin();
