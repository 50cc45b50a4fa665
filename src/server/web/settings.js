// The settings beside the conversation: system message, thinking, sampling. An empty field is not
// sent, so that the model's own default holds.
import {$, chats, local, page, say, store} from './state.js';

const kNumbers = ['temperature', 'top_p', 'top_k', 'min_p', 'max_tokens'];
// Completions end after 16 tokens where nobody asks for more, which is short for reading.
const kCompletionTokens = 256;

const fields = () => [...$('settings').querySelectorAll('[name]')];
const overPage = () => window.matchMedia('(max-width: 60rem)').matches;
const coversPage = () => !$('panel').hidden && overPage();

// Shows what is wrong where something is.
export function settingsAreValid() {
  if ($('settings').checkValidity()) return true;
  openPanel(true);
  $('settings').reportValidity();
  return false;
}

export const systemMessage = () => (chats() ? $('system').value : '');

// What the settings add to the body of a request.
export function settingsForRequest() {
  const body = {};
  for (const name of kNumbers) {
    if ($(name).value !== '') body[name] = Number($(name).value);
  }
  if (!chats()) {
    body.max_tokens ??= kCompletionTokens;
  } else if ($('thinking').value !== '' && !$('thinking-field').hidden) {
    body.chat_template_kwargs = {enable_thinking: $('thinking').value === 'on'};
  }
  return body;
}

// As digits, because seeds have 64 bits and JavaScript's numbers have not; empty: none.
export const seedDigits = () => $('seed').value.replace(/^(-?)0+(?=\d)/, '$1');

// Fits the form to what the served model offers.
export function fitSettings() {
  if (!chats()) {
    $('max_tokens').placeholder = String(kCompletionTokens);
    for (const field of document.querySelectorAll('.chat-only')) field.hidden = true;
  }
  // "optional" where the checkpoint leaves a choice, else what it always does.
  const thinking = page.model.kipp?.thinking;
  if (thinking !== undefined && thinking !== 'optional') $('thinking-field').hidden = true;
  for (const [name, value] of Object.entries(page.model.kipp?.sampling ?? {})) {
    if (kNumbers.includes(name)) $(name).placeholder = String(value);
  }
}

function openPanel(open) {
  $('panel').hidden = !open;
  $('panel-toggle').setAttribute('aria-expanded', String(open));
  store.write(local, 'panel', open && !overPage());
}

function closePanel() {
  openPanel(false);
  $('panel-toggle').focus();
}

// Whether there was something to close.
export function closeCoveringPanel() {
  if (!coversPage()) return false;
  closePanel();
  return true;
}

function save() {
  store.write(local, 'settings', Object.fromEntries(fields().map((f) => [f.name, f.value])));
}

export function wireSettings() {
  const stored = store.read(local, 'settings') ?? {};
  for (const field of fields()) {
    if (typeof stored[field.name] === 'string') field.value = stored[field.name];
  }
  openPanel(store.read(local, 'panel') === true && !overPage());
  $('panel-toggle').addEventListener('click', () => {
    openPanel($('panel').hidden);
    if (!$('panel').hidden) fields().find((f) => f.offsetParent !== null).focus();
  });
  $('panel-close').addEventListener('click', closePanel);
  $('defaults').addEventListener('click', () => {
    $('settings').reset();
    save();
    say('Settings are back to defaults');
  });
  $('settings').addEventListener('input', save);
  $('settings').addEventListener('submit', (event) => event.preventDefault());
}
