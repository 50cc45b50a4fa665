// What the server is busy with and how its KV cache is filled, asked of /metrics while somebody may
// be looking.
import {$, page} from './state.js';
import {call, readMetrics} from './server.js';

const kPollEvery = 2000;
let timer = 0;

function showLoad(values) {
  const blocks = (state) => values[`kipp_kv_blocks.${state}`];
  // Some in use are shared by sequences and counted apart.
  const used = blocks('used') + (blocks('shared') ?? 0);
  const cached = blocks('cached');
  const free = blocks('free');
  const known = [used, cached, free].every((n) => Number.isFinite(n));
  $('cache').hidden = $('load').hidden = !known;
  if (!known) return;
  const total = Math.max(used + cached + free, 1);
  const percent = (n) => (n > 0 && n / total < 0.01 ? '<1' : Math.round(100 * n / total));
  $('cache-text').textContent =
      `KV cache ${percent(used)} % in use, ${percent(cached)} % kept`;
  const bar = $('cache-bar').children;
  bar[0].style.width = `${100 * used / total}%`;
  bar[1].style.width = `${100 * cached / total}%`;
  $('load-used').textContent = used.toLocaleString('en');
  $('load-cached').textContent = cached.toLocaleString('en');
  $('load-free').textContent = free.toLocaleString('en');
  $('load-running').textContent = String(values.kipp_requests_running ?? '?');
  $('load-waiting').textContent = String(values.kipp_requests_waiting ?? '?');
}

// Asks now and from then on. Says on the document, as events, when the server is "lost" and "found".
export async function watchLoad() {
  clearTimeout(timer);
  timer = setTimeout(watchLoad, kPollEvery);
  if (document.hidden || !page.model) return;
  try {
    const response = await call('metrics');
    showLoad(response.ok ? readMetrics(await response.text()) : {});
    document.dispatchEvent(new Event('found'));
  } catch {
    document.dispatchEvent(new Event('lost'));
  }
}
