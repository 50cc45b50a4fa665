// What the page knows, and what of it outlives a reload.

export const page = {
  // The entry of /v1/models; null until the server has answered.
  model: null,
  // {role: 'user', content} and {role: 'assistant', content, reasoning, state, error, stats}, in
  // turn. state: running, done, length (cut at max tokens), stopped (by the reader, or the page
  // went), failed.
  messages: [],
  // What was cleared last and can still be had back.
  cleared: null,
  // The answer under way: {controller, message, marks, progress}.
  running: null,
};

// Base checkpoints complete texts and do not converse.
export const chats = () => page.model?.kipp?.chat !== false;

export const $ = (id) => document.getElementById(id);
export const counted = (n, one) => `${n.toLocaleString('en')} ${one}${n === 1 ? '' : 's'}`;
// To those who listen to the page instead of looking at it.
export const say = (text) => { $('status').textContent = text; };

export const local = () => window.localStorage;
export const session = () => window.sessionStorage;

// Storage may be full, forbidden, or hold what another version wrote: then the page does without.
export const store = {
  read(area, key) {
    try {
      return JSON.parse(area().getItem(`kipp.${key}`));
    } catch {
      return null;
    }
  },
  write(area, key, value) {
    try {
      if (value === null) area().removeItem(`kipp.${key}`);
      else area().setItem(`kipp.${key}`, JSON.stringify(value));
    } catch {
      // What is on the screen stays.
    }
  },
};

const conversationKey = () => (chats() ? 'conversation.chat' : 'conversation.text');

export function saveConversation() {
  if (page.model) store.write(local, conversationKey(), page.messages.length > 0 ? page.messages : null);
}

export const kNoStats = {tokens: 0, rate: 0, prompt: 0, cached: 0, seed: ''};

// A stored message, or null where it is none.
function restored(value) {
  if (typeof value?.content !== 'string') return null;
  if (value.role === 'user') return {role: 'user', content: value.content};
  if (value.role !== 'assistant') return null;
  const stats = {...kNoStats};
  for (const [name, none] of Object.entries(kNoStats)) {
    if (typeof value.stats?.[name] === typeof none) stats[name] = value.stats[name];
  }
  return {
    role: 'assistant',
    content: value.content,
    reasoning: typeof value.reasoning === 'string' ? value.reasoning : '',
    // One that was still running when the page went has lost its stream.
    state: ['done', 'length', 'failed'].includes(value.state) ? value.state : 'stopped',
    error: typeof value.error === 'string' ? value.error : '',
    stats,
  };
}

export function loadConversation() {
  const stored = store.read(local, conversationKey());
  page.messages = Array.isArray(stored) ? stored.map(restored).filter((m) => m !== null) : [];
}
