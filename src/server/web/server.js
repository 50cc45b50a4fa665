// Requests to the server this page came from, and what all answers have in common. Failures become
// sentences for the reader.
import {counted, session, store} from './state.js';

// What went wrong, in such a sentence.
export class Trouble extends Error {}

// Says so on the document, as an event "locked", when the server wants another key.
export async function call(path, options = {}) {
  const headers = {...options.headers};
  const key = store.read(session, 'key');
  if (key) headers.Authorization = `Bearer ${key}`;
  // Relative: the page may stand behind a proxy that adds a prefix.
  const response = await fetch(path, {...options, headers, cache: 'no-store'});
  if (response.status === 401) document.dispatchEvent(new Event('locked'));
  return response;
}

export async function troubleOf(response) {
  let text = `The server answered ${response.status} ${response.statusText}.`;
  try {
    const {error} = await response.json();
    if (typeof error?.message === 'string' && error.message !== '') text = error.message;
  } catch {
    // No JSON: the status has to do.
  }
  const wait = Number(response.headers.get('Retry-After'));
  if (wait > 0) text += ` (Worth another try in ${counted(wait, 'second')}.)`;
  return new Trouble(text);
}

export function inWords(error) {
  if (error instanceof Trouble) return error.message;
  if (error instanceof SyntaxError) return 'The server sent what this page cannot read.';
  return 'The connection to the server is gone. Is kipp still running?';
}

// The data of each event of a stream.
export async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = '';
  for (;;) {
    const {done, value} = await reader.read();
    if (done) return;
    const lines = (waiting + value).split('\n');
    waiting = lines.pop();
    for (const line of lines) {
      if (line.startsWith('data:')) yield line.slice(5).trim();
    }
  }
}

// Values of /metrics by name; those with a state as "name.state".
export function readMetrics(text) {
  const values = {};
  for (const line of text.split('\n')) {
    const match = /^(kipp_[a-z_]+)(?:\{([^}]*)\})? (\S+)$/.exec(line);
    if (!match) continue;
    const state = /\bstate="(\w+)"/.exec(match[2] ?? '')?.[1];
    values[state ? `${match[1]}.${state}` : match[1]] = Number(match[3]);
  }
  return values;
}
