// @ts-check
// One message: its body in every form, what it carries, and what became of it.
import { html, useState, useMemo, useAnswer, useAddress, shared, when, bytes, count, enc, go, withQuery, duration } from "/static/lib/core.js";
import { Head, Card, Chip, Facts, Trouble, Loading, Copy, Ask, Empty } from "/static/lib/parts.js";

const SHOWN = 64 * 1024, COLOURED = 24 * 1024, CHUNK = 4096;
const FORMS = [["", "as found"], ["json", "JSON"], ["text", "text"], ["msgpack", "MessagePack"], ["avro", "Avro"], ["protobuf", "Protobuf"], ["hex", "hex"]];

/** @param {{id: string}} p */
export default function MessagePage({ id }) {
  const { query } = useAddress();
  const topic = query.get("topic") || "", form = query.get("as") || "";
  const suffix = topic ? `topic=${enc(topic)}` : "";
  const { data: it, error } = useAnswer(`/api/messages/${enc(id)}?${suffix}${form ? `&as=${form}` : ""}`);
  if (!it) return html`<${Head} title="Message" crumb=${html`<span class="mono">${id}</span>`}/>${error ? html`<${Trouble} trouble=${error}/>` : html`<${Loading}/>`}`;
  return html`<${Head} title=${it.keys.length ? it.keys.join(" ") : "Message"} crumb=${html`<a href=${`/topics/${enc(it.topic)}/messages`}>${it.topic}</a> · ${it.broker}, queue ${it.queue}, offset ${count(it.offset)}`}>
      ${shared.me.bodies && shared.me.export && html`<a class="btn" download href=${`/api/messages/${enc(id)}/body?${suffix}`}>Download</a>`}
      <${Ask} action="message.resend" label="Send again" title="Send again" note="A new message like this one; the old one stays. Edited, it says so in a property." fields=${[{ name: "to", title: "To topic" }, ...(it.body.is_cut || it.body.kind === "hex" || it.body.kind === "masked" || shared.me.masks.length || !shared.me.bodies ? [] : [{ name: "body", title: "Body", kind: "text" }]), { name: "tag", title: "Tag" }]} start=${{ to: it.topic, body: it.body.text, tag: it.tag || "" }}
        make=${(/** @type {any} */ v) => ({ id: it.offset_id, topic: it.stored_in, to: v.to.trim(), ...(v.body !== undefined && v.body !== it.body.text ? { body: v.body } : {}), ...(v.tag !== (it.tag || "") ? { tag: v.tag } : {}) })}/><//>
    <div class="grid"><div class="w7" style=${{ display: "grid", gap: "20px" }}><${Body} it=${it} form=${form}/><${Properties} it=${it}/></div>
      <div class="w5" style=${{ display: "grid", gap: "20px" }}><${Timeline} id=${id} suffix=${suffix}/>
        <${Card} title="Where and when" inset><${Facts} items=${[["id", html`<span class="mono">${it.id}</span>`], ["offset id", html`<span class="mono">${it.offset_id}</span>`], ["topic", it.topic], ["stored in", it.stored_in], ["place", `${it.broker} / ${it.queue} / ${it.offset}`], ["log position", count(it.physical_offset)], ["born", `${when(it.born_ms, true)} on ${it.born_host}`], ["stored", `${when(it.stored_ms, true)}, ${duration(Math.max(0, it.stored_ms - it.born_ms))} later`],
          ["body", `${bytes(it.size)}${it.compression ? `, stored as ${bytes(it.stored_body_bytes)} of ${it.compression}` : ""}`], ["record", bytes(it.record_bytes)], ["delivery", it.tries], ["flag", it.flag], ["transaction", it.transaction || "none"]]}/><//>
        <${Card} title="Take it elsewhere" inset><div class="form"><${Way} title="curl" text=${`curl '${location.origin}/api/messages/${id}?${suffix}'`}/><${Way} title="command line" text=${`cometmq send ${it.topic}${it.tag ? ` --tag ${quoted(it.tag)}` : ""}${it.keys.map((/** @type {string} */ k) => ` --key ${quoted(k)}`).join("")} ${quoted(it.body.text.slice(0, 2000))}`}/>
          <${Way} title="Python" text=${`await producer.send(${JSON.stringify(it.topic)}, ${JSON.stringify(it.body.text.slice(0, 2000))}.encode()${it.tag ? `, tag=${JSON.stringify(it.tag)}` : ""}${it.keys.length ? `, keys=${JSON.stringify(it.keys)}` : ""})`}/></div><//></div></div>`;
}

/** @param {string} text */
const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

/** @param {{title: string, text: string}} p */
const Way = ({ title, text }) => html`<div><div class="acts" style=${{ justifyContent: "space-between", marginBottom: "4px" }}><h3>${title}</h3><${Copy} text=${text}/></div><pre class="body" style=${{ maxHeight: "120px", padding: "8px 10px" }}>${text}</pre></div>`;

/** @param {{it: any, form: string}} p */
function Body({ it, form }) {
  const [whole, see] = useState(false);
  const body = it.body;
  const asHex = form === "hex";
  const text = asHex ? body.hex : body.text;
  const shown = whole ? text : text.slice(0, SHOWN);
  const acts = html`<select class="field" aria-label="Show the body as" style=${{ height: "28px" }} value=${form} onChange=${(/** @type {any} */ e) => go(withQuery({ as: e.target.value }), true)}>${FORMS.map(([name, title]) => html`<option key=${name} value=${name} selected=${name === form}>${title}</option>`)}</select><${Copy} text=${text}/>`;
  return html`<${Card} title=${html`Body <${Chip} plain kind="blue">${body.kind}${body.opened ? `, from ${body.opened}` : ""}<//>`} acts=${acts} inset>
    ${body.faults.map((/** @type {string} */ fault) => html`<p class="note warn" key=${fault} style=${{ marginBottom: "8px" }}>${fault}</p>`)}
    ${body.kind === "hidden" ? null : body.kind === "empty" ? html`<${Empty} title="The body is empty"/>` : html`<pre class=${`body ${body.kind === "hex" || asHex ? "hex" : ""}`} tabindex="0" aria-label="Body">${body.value !== null && (body.kind === "json" || body.kind === "msgpack" || body.kind === "avro" || body.kind === "protobuf") && shown.length <= COLOURED ? html`<${Coloured} text=${shown}/>` : pieces(shown)}</pre>`}
    ${shown.length < text.length && html`<p style=${{ marginTop: "8px" }}><button class="btn tiny" onClick=${() => see(true)}>Show ${bytes(text.length)}</button></p>`}
    ${body.is_cut && html`<p class="muted small" style=${{ marginTop: "8px" }}>Only the beginning of ${bytes(it.size)} is shown: download it to see all.</p>`}<//>`;
}

/** Long text in pieces, so that only those that can be seen are laid out. @param {string} text */
function pieces(text) {
  if (text.length <= CHUNK * 2) return text;
  const found = [];
  for (let at = 0; at < text.length;) {
    let end = Math.min(text.length, at + CHUNK);
    const line = text.lastIndexOf("\n", end);
    if (end < text.length && line > at) end = line + 1;
    found.push(html`<div key=${at}>${text.slice(at, end)}</div>`);
    at = end;
  }
  return found;
}

/** @param {{text: string}} p */
function Coloured({ text }) {
  return useMemo(() => {
    const found = [];
    let at = 0;
    for (const match of text.matchAll(/("(?:[^"\\]|\\.)*")(\s*:)?|\b(true|false|null)\b|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g)) {
      if (match.index > at) found.push(text.slice(at, match.index));
      const kind = match[1] ? (match[2] ? "k" : "s") : match[3] ? "w" : "n";
      found.push(html`<span class=${kind}>${match[1] || match[0]}</span>`);
      if (match[2]) found.push(match[2]);
      at = match.index + match[0].length;
    }
    found.push(text.slice(at));
    return found;
  }, [text]);
}

/** @param {{it: any}} p */
function Properties({ it }) {
  const own = Object.entries(it.user_properties), rest = Object.entries(it.properties).filter(([name]) => !(name in it.user_properties));
  return html`<${Card} title="Properties" inset>${own.length ? html`<${Facts} items=${own}/>` : html`<p class="muted">The application set none.</p>`}<h3 style=${{ margin: "14px 0 6px" }}>RocketMQ's own</h3><${Facts} items=${rest.map(([name, value]) => [name, html`<span class="mono">${value}</span>`])}/><//>`;
}

const LEVEL = /** @type {Record<string, string>} */ ({ born: "", sent: "blue", stored: "blue", past: "good", consumed: "good", retry: "warn", dead: "bad", waiting: "", consume: "blue", transaction: "blue", due: "" });

/** @param {{id: string, suffix: string}} p */
function Timeline({ id, suffix }) {
  const { data, error } = useAnswer(`/api/messages/${enc(id)}/timeline?${suffix}`);
  return html`<${Card} title="What became of it" inset>${error ? html`<${Trouble} trouble=${error}/>` : !data ? html`<${Loading}/>` : html`<ol class="line" aria-label="Timeline">${data.events.map((/** @type {any} */ it, /** @type {number} */ n) => html`<li key=${n} data-kind=${it.kind} class=${it.ok === false ? "bad" : LEVEL[it.kind] || ""}><time>${when(it.at_ms, true)}${n ? ` · +${duration(Math.max(0, it.at_ms - data.events[0].at_ms))}` : ""}</time>${it.text}${it.took_ms ? html` <span class="muted">${duration(it.took_ms)}</span>` : ""}</li>`)}</ol>
    ${data.unknown.map((/** @type {string} */ it) => html`<p class="muted small" key=${it}>${it}</p>`)}`}<//>`;
}
