// @ts-check
// What every page uses: requests, live parts, addresses, and how times and numbers are written.
import { html, render, useState, useEffect, useRef, useMemo, useCallback, useReducer } from "/static/vendor/preact-htm.js";

export { html, render, useState, useEffect, useRef, useMemo, useCallback };

// Requests

export class Refusal extends Error {
  /** @param {number} status @param {any} content */
  constructor(status, content) {
    super(content && content.error ? content.error : `the console answered ${status}`);
    this.status = status;
    this.content = content;
  }
}

/** @param {string} path @param {any} [body] @returns {Promise<any>} */
export async function api(path, body) {
  const init = body === undefined ? {} : {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-CometMQ-Console": "1" },
    body: JSON.stringify(body),
  };
  let response;
  try {
    response = await fetch(path, init);
  } catch (error) {
    throw new Refusal(0, { error: "the console does not answer: is it still running?" });
  }
  const content = await response.json().catch(() => null);
  if (response.status === 401 && !path.startsWith("/api/log")) shared.tellOut();
  if (!response.ok) throw new Refusal(response.status, content);
  return content;
}

export const shared = { tellOut: () => {}, me: /** @type {any} */ (null), toast: (/** @type {string} */ _text) => {} };

/** What a request gives, asked for again when the address changes. @param {string | null} path @param {any[]} [again] */
export function useAnswer(path, again = []) {
  const [state, put] = useState(/** @type {any} */ ({ data: null, error: null, path: null }));
  useEffect(() => {
    if (path === null) return undefined;
    let left = false;
    api(path).then(
      (data) => left || put({ data, error: null, path }),
      (error) => left || put({ data: null, error, path }),
    );
    return () => { left = true; };
  }, [path, ...again]);
  return state.path === path ? state : { data: state.data && state.path && path && state.path.split("?")[0] === path.split("?")[0] ? state.data : null, error: null, path };
}

// Live parts: one stream for all that the page shows

/** @type {Map<string, number>} */ const wanted = new Map();
/** @type {Map<string, {parts: any, trouble: string | null}>} */ const parts = new Map();
/** @type {Set<() => void>} */ const lookers = new Set();
/** @type {EventSource | null} */ let stream = null;
let streamKeys = "";
let timer = 0;
export const connection = { lostAt: 0 };

function tell() { for (const look of lookers) look(); }

function arrange() {
  timer = 0;
  const keys = [...wanted.keys()].sort();
  const joined = keys.join("\n");
  if (joined === streamKeys) return;
  streamKeys = joined;
  if (stream) stream.close();
  stream = null;
  for (const key of parts.keys()) if (!wanted.has(key)) parts.delete(key);
  if (!keys.length) return;
  const query = keys.slice(0, 90).map((key) => `watch=${encodeURIComponent(key)}`).join("&");
  const opened = new EventSource(`/api/events?${query}`);
  stream = opened;
  opened.addEventListener("open", () => { if (connection.lostAt) { connection.lostAt = 0; tell(); } });
  opened.addEventListener("error", () => {
    if (stream !== opened) return;
    if (!connection.lostAt) { connection.lostAt = Date.now(); tell(); }
    if (opened.readyState === EventSource.CLOSED) { streamKeys = ""; window.setTimeout(soon, 2000); api("/api/me").catch(() => {}); }
  });
  opened.addEventListener("parts", (event) => {
    const { watch, parts: changed, gone, full } = JSON.parse(/** @type {MessageEvent} */ (event).data);
    const known = parts.get(watch);
    const whole = full ? changed : { ...(known ? known.parts : {}), ...changed };
    for (const name of gone) delete whole[name];
    parts.set(watch, { parts: whole, trouble: null });
    if (connection.lostAt) connection.lostAt = 0;
    tell();
  });
  opened.addEventListener("trouble", (event) => {
    const { watch, cause } = JSON.parse(/** @type {MessageEvent} */ (event).data);
    const known = parts.get(watch);
    parts.set(watch, { parts: known ? known.parts : null, trouble: cause });
    tell();
  });
}

function soon() { if (!timer) timer = window.setTimeout(arrange, 40); }
window.addEventListener("pagehide", () => { if (stream) stream.close(); });

/** Parts of several watches: {key: parts}. @param {string[]} keys */
export function useLive(keys) {
  const [, again] = useReducer((/** @type {number} */ n) => n + 1, 0);
  const joined = keys.join("\n");
  useEffect(() => {
    const mine = joined ? joined.split("\n") : [];
    for (const key of mine) wanted.set(key, (wanted.get(key) || 0) + 1);
    lookers.add(again);
    soon();
    return () => {
      lookers.delete(again);
      for (const key of mine) {
        const left = (wanted.get(key) || 1) - 1;
        if (left) wanted.set(key, left); else wanted.delete(key);
      }
      soon();
    };
  }, [joined]);
  return (/** @type {string} */ key) => parts.get(key) || { parts: null, trouble: null };
}

/** Parts whose names begin so. @param {any} all @param {string} prefix @returns {any[]} */
export const among = (all, prefix) => Object.keys(all || {}).filter((name) => name.startsWith(prefix)).map((name) => all[name]);

// Addresses

/** @type {Set<() => void>} */ const movers = new Set();

/** @param {string} to @param {boolean} [replace] */
export function go(to, replace) {
  if (to === location.pathname + location.search) return;
  if (replace) history.replaceState(null, "", to); else { history.pushState(null, "", to); window.scrollTo(0, 0); }
  for (const move of movers) move();
}
window.addEventListener("popstate", () => { for (const move of movers) move(); });

export function useAddress() {
  const [, again] = useReducer((/** @type {number} */ n) => n + 1, 0);
  useEffect(() => { movers.add(again); return () => { movers.delete(again); }; }, []);
  return { path: location.pathname, query: new URLSearchParams(location.search) };
}

/** The same page with other words in its address. @param {Record<string, string | null>} changes */
export function withQuery(changes) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) if (value === null || value === "") query.delete(name); else query.set(name, value);
  const text = query.toString();
  return location.pathname + (text ? `?${text}` : "");
}

document.addEventListener("click", (event) => {
  const link = /** @type {Element} */ (event.target).closest("a");
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  const href = link.getAttribute("href");
  if (!href || !href.startsWith("/") || href.startsWith("/api/") || link.hasAttribute("download") || link.getAttribute("target")) return;
  event.preventDefault();
  go(href);
});

/** @param {string} text */
export const enc = (text) => encodeURIComponent(text);

// Words

let utc = localStorage.getItem("utc") === "1";
export const isUtc = () => utc;
export function switchUtc() { utc = !utc; localStorage.setItem("utc", utc ? "1" : "0"); tell(); for (const move of movers) move(); }

/** @param {number} n @param {number} [digits] */
const two = (n, digits = 2) => String(n).padStart(digits, "0");

/** Day and time; the day is left out when it is today. @param {number | null | undefined} ms @param {boolean} [long] */
export function when(ms, long) {
  if (!ms) return "–";
  const d = new Date(ms);
  const get = (/** @type {string} */ name) => /** @type {any} */ (d)[(utc ? "getUTC" : "get") + name]();
  const now = new Date();
  const day = `${get("FullYear")}-${two(get("Month") + 1)}-${two(get("Date"))}`;
  const today = utc ? now.toISOString().slice(0, 10) : `${now.getFullYear()}-${two(now.getMonth() + 1)}-${two(now.getDate())}`;
  const time = `${two(get("Hours"))}:${two(get("Minutes"))}:${two(get("Seconds"))}`;
  if (long) return `${day} ${time}.${two(get("Milliseconds"), 3)}${utc ? " UTC" : ""}`;
  return day === today ? time : `${day} ${time.slice(0, 5)}`;
}

/** @param {number | null | undefined} ms */
export function duration(ms) {
  if (ms === null || ms === undefined) return "unknown";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = Math.floor(ms / 1000);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min${s % 60 ? ` ${s % 60} s` : ""}`;
  if (s < 86400) return `${Math.floor(s / 3600)} h${Math.floor((s % 3600) / 60) ? ` ${Math.floor((s % 3600) / 60)} min` : ""}`;
  return `${Math.floor(s / 86400)} d${Math.floor((s % 86400) / 3600) ? ` ${Math.floor((s % 86400) / 3600)} h` : ""}`;
}
/** @param {number | null | undefined} ms */
export const ago = (ms) => (ms ? `${duration(Math.max(0, Date.now() - ms))} ago` : "–");

/** @param {number | null | undefined} n */
export const count = (n) => (n === null || n === undefined ? "unknown" : n.toLocaleString("en-US").replaceAll(",", "\u202f"));

/** @param {number | null | undefined} n */
export function short(n) {
  if (n === null || n === undefined) return "–";
  if (n < 10_000) return count(Math.round(n));
  if (n < 999_500) return `${(n / 1000).toFixed(n < 100_000 ? 1 : 0)} k`;
  if (n < 999_500_000) return `${(n / 1e6).toFixed(n < 1e8 ? 1 : 0)} M`;
  return `${(n / 1e9).toFixed(1)} G`;
}

/** @param {number | null | undefined} n */
export const rate = (n) => (n === null || n === undefined ? "–" : n < 10 && n > 0 ? n.toFixed(1) : short(n));

/** @param {number | null | undefined} n */
export function bytes(n) {
  if (n === null || n === undefined) return "–";
  if (n < 1024) return `${n} B`;
  for (const [unit, size] of /** @type {[string, number][]} */ ([["KiB", 1024], ["MiB", 1024 ** 2], ["GiB", 1024 ** 3], ["TiB", 1024 ** 4]])) {
    if (n < size * 1024) return `${(n / size).toFixed(n < size * 10 ? 1 : 0)} ${unit}`;
  }
  return `${(n / 1024 ** 5).toFixed(1)} PiB`;
}

/** One, or several. @param {number} n @param {string} one @param {string} [many] */
export const some = (n, one, many) => `${count(n)} ${n === 1 ? one : many || `${one}s`}`;

/** @param {string} action */
export const may = (action) => Boolean(shared.me && shared.me.actions && shared.me.actions[action]);
