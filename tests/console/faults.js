() => {
  const faults = [];
  const seen = (it) => it.getClientRects().length > 0;
  for (const it of document.querySelectorAll("button, a[href], input, select, textarea")) {
    if (!seen(it)) continue;
    const name = it.getAttribute("aria-label") || it.textContent.trim() || (it.labels && it.labels[0] && it.labels[0].textContent.trim()) || it.title;
    if (!name) faults.push("no name: " + it.outerHTML.slice(0, 120));
  }
  if (document.querySelectorAll("h1").length !== 1) faults.push("headings of the first level: " + document.querySelectorAll("h1").length);
  if (!document.querySelector("main") || !document.querySelector("nav")) faults.push("no landmarks");
  if (!document.documentElement.lang) faults.push("no language");
  if (document.documentElement.scrollWidth > window.innerWidth + 1) faults.push("wider than the window: " + document.documentElement.scrollWidth);
  const ids = [...document.querySelectorAll("[id]")].map((it) => it.id);
  if (new Set(ids).size !== ids.length) faults.push("an id twice");
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (text) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const light = ([r, g, b]) => { const f = (c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
  const back = (it) => { for (; it; it = it.parentElement) { const c = rgb(getComputedStyle(it).backgroundColor); if (c[3] > 250) return c; } return [255, 255, 255, 255]; };
  for (const it of document.querySelectorAll("h1, h2, p, td, th, a, button, dt, dd, span, label, li")) {
    if (!seen(it) || ![...it.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())) continue;
    const a = light(rgb(getComputedStyle(it).color)), b = light(back(it));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5 && !it.closest(":disabled")) faults.push(`contrast ${ratio.toFixed(2)}: ${it.className} ${it.textContent.trim().slice(0, 30)}`);
  }
  return [...new Set(faults)].slice(0, 10);
}
// What a screen reader or a reader with weak eyes stumbles over, looked for by hand.
