// @ts-check
// Dead letters: groups that have some, and those of one group by cause, to be sent again.
import { html, useState, useLive, useAnswer, useAddress, go, withQuery, count, duration, enc, some, shared } from "/static/lib/core.js";
import { Head, Card, Chip, Table, Trouble, Loading, Empty, Act, Ago } from "/static/lib/parts.js";
import { Rows } from "/static/pages/messages.js";

export default function DeadLetters() {
  const { parts, trouble } = useLive(["letters"])("letters");
  const rows = Object.values(parts || {}).sort((/** @type {any} */ a, /** @type {any} */ b) => b.messages - a.messages);
  return html`<${Head} title="Dead letters" about="What groups gave up on. The letters stay until they expire; sending them again makes copies."/><${Trouble} trouble=${trouble}/>
    <${Card}>${!parts ? html`<${Loading}/>` : html`<${Table} label="Groups with dead letters" id=${(/** @type {any} */ r) => r.group} rows=${rows} empty=${html`<${Empty} title="No dead letters">No group has given up on a message.<//>`} columns=${[
      { name: "group", title: "Group", show: (/** @type {any} */ r) => html`<a class="name" href=${`/groups/${enc(r.group)}/dlq`}>${r.group}</a>` }, { name: "messages", title: "Letters", num: true, show: (/** @type {any} */ r) => count(r.messages) }, { name: "newest", title: "Newest", num: true, show: (/** @type {any} */ r) => html`<${Ago} ms=${r.newest_ms}/>` }]}/>`}<//>`;
}

/** @param {{group: string}} p */
export function Letters({ group }) {
  const { query } = useAddress();
  const cause = query.get("cause") || "";
  const [again, look] = useState(0);
  const [chosen, choose] = useState(/** @type {Set<string>} */ (new Set()));
  const { data, error } = useAnswer(`/api/groups/${enc(group)}/dlq?cause=${enc(cause)}`, [again]);
  if (!data) return error ? html`<${Trouble} trouble=${error}/>` : html`<${Loading}/>`;
  const toggle = (/** @type {string} */ place) => { const next = new Set(chosen); if (next.has(place)) next.delete(place); else next.add(place); choose(next); };
  const done = () => { choose(new Set()); look(again + 1); };
  return html`<div class="filter"><a class="btn tiny" aria-current=${cause ? undefined : "true"} href=${withQuery({ cause: null })}>all ${count(data.total)}</a>${data.causes.map((/** @type {any} */ it) => html`<a key=${it.cause} class=${`btn tiny ${cause === it.cause ? "main-act" : ""}`} href=${withQuery({ cause: it.cause })}>${it.cause.slice(0, 80)} <b>${count(it.messages)}</b></a>`)}
      <span style=${{ flex: 1 }}></span>${chosen.size > 0 && html`<${Act} action="letters.replay" request=${() => ({ group, places: [...chosen] })} onDone=${done}>Send ${some(chosen.size, "letter")} again<//>`}
      ${data.chosen > 0 && html`<${Act} action="letters.replay" request=${() => cause ? { group, cause } : { group }} onDone=${done}>Send all ${count(data.chosen)} again<//>`}
      ${data.chosen > 0 && shared.me.export && html`<a class="btn" download href=${`/api/topics/${enc(`%DLQ%${group}`)}/export?limit=10000${cause ? `&q=${enc(`prop.error:"${cause}"`)}` : ""}`}>Export</a>`}</div>
    ${data.chosen > data.rows.length && html`<p class="muted small">The newest ${count(data.rows.length)} of ${count(data.chosen)} are shown.</p>`}
    <${Rows} rows=${data.rows} empty=${html`<${Empty} title="No dead letters"/>`} extra=${[
      { name: "choose", title: "", show: (/** @type {any} */ r) => html`<input type="checkbox" aria-label=${`choose ${r.place}`} checked=${chosen.has(r.place)} disabled=${Boolean(r.sent)} onClick=${(/** @type {Event} */ e) => e.stopPropagation()} onChange=${() => toggle(r.place)}/>` },
      { name: "cause", title: "Cause", show: (/** @type {any} */ r) => html`<span class="nowrap">${r.cause.slice(0, 40)}</span> ${r.sent ? html`<${Chip} kind=${r.sent === "sent" ? "good" : "warn"}>${r.sent === "sent" ? "sent again" : "cut off"}<//>` : ""}` },
      { name: "origin", title: "From", opt: true, show: (/** @type {any} */ r) => r.origin_topic }, { name: "age", title: "Age", num: true, opt: true, show: (/** @type {any} */ r) => duration(r.age_ms) }]}/>`;
}
export { go, Chip };
