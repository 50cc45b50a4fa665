// The page of `kipp serve`: a chat, or plain completion where the checkpoint does not converse.
//
// Two rules hold all over these scripts. What a model wrote reaches the page as text nodes alone, so
// that it can become neither markup nor a link nor a script. And every number shown is the server's
// own: tokens from `usage`, speed from them and `timings`, the cache from /metrics.
import {$, chats, loadConversation, page, saveConversation, say, session, store} from './state.js';
import {goOn, retry, send, showBusy, stop} from './answer.js';
import {call, troubleOf} from './server.js';
import {closeCoveringPanel, fitSettings, wireSettings} from './settings.js';
import {nearEnd, onAnswerAction, show, toEnd} from './view.js';
import {watchLoad} from './load.js';

function showModel(state, text) {
  $('model').dataset.state = state;
  $('model').textContent = text;
  $('model').title = text;
}

const kRetryAfter = 1000;
let retryTimer = 0;

// Finds out what is served, again and again until the server says it.
async function connect() {
  clearTimeout(retryTimer);
  try {
    const response = await call('v1/models');
    if (response.ok) {
      const first = page.model === null;
      page.model = (await response.json()).data[0];
      showModel('ready', page.model.id);
      if (first) begin();
      return;
    }
    if (response.status === 401) {
      showModel('waiting', 'locked');
      return;
    }
    showModel('waiting', response.status === 503 ? 'loading the model…'
                                                 : (await troubleOf(response)).message);
  } catch {
    showModel('lost', 'no connection');
  }
  retryTimer = setTimeout(connect, kRetryAfter);
}

// The model is known now, and with it whether this is a chat.
function begin() {
  document.title = `${page.model.id} · kipp`;
  if (!chats()) {
    $('text-label').textContent = 'Text to continue';
    $('text').placeholder = 'Write the beginning of a text';
    $('send').textContent = 'Complete';
    $('welcome-title').textContent = 'Begin a text';
  }
  fitSettings();
  loadConversation();
  show();
  toEnd();
  showBusy();
  watchLoad();
}

function fitText() {
  const text = $('text');
  text.style.height = 'auto';
  text.style.height = `${text.scrollHeight}px`;
}

function sendText() {
  if (!send($('text').value)) return;
  $('text').value = '';
  fitText();
}

function onClick(id, action) {
  $(id).addEventListener('click', action);
}

function wireComposer() {
  $('composer').addEventListener('submit', (event) => {
    event.preventDefault();
    sendText();
  });
  $('text').addEventListener('input', fitText);
  $('text').addEventListener('keydown', (event) => {
    // Enter also ends the composition of a character, which is not the end of the message.
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    sendText();
  });
  document.addEventListener('keydown', (event) => {
    if (event.key !== 'Escape' || event.isComposing) return;
    if (!closeCoveringPanel()) stop();
  });
  onClick('stop', stop);
}

function wireConversation() {
  // The button that was pressed goes away with the state it was for.
  const then = (action) => (message) => {
    action(message);
    $('text').focus();
  };
  onAnswerAction({goOn: then(goOn), retry: then(retry)});
  onClick('clear', () => {
    page.cleared = page.messages;
    page.messages = [];
    saveConversation();
    show();
    say('The conversation is cleared');
    $('undo').focus();
  });
  onClick('undo', () => {
    page.messages = page.cleared;
    page.cleared = null;
    saveConversation();
    show();
    toEnd();
    $('text').focus();
  });
  onClick('newest', toEnd);
  $('scroller').addEventListener('scroll', () => { $('newest').hidden = nearEnd(); });
  // The stream ends with the page, which is nobody's failure. Everything else is saved already, and
  // another tab may have saved since.
  window.addEventListener('pagehide', () => {
    if (!page.running) return;
    stop();
    saveConversation();
  });
}

function askForKey() {
  // The stored one, if any, was not the right one.
  store.write(session, 'key', null);
  $('forget-key').hidden = true;
  if (!$('key-form').hidden) return;
  $('key-form').hidden = false;
  $('key').focus();
}

function wireKey() {
  $('forget-key').hidden = !store.read(session, 'key');
  document.addEventListener('locked', askForKey);
  $('key-form').addEventListener('submit', (event) => {
    event.preventDefault();
    store.write(session, 'key', $('key').value);
    $('key').value = '';
    $('key-form').hidden = true;
    $('forget-key').hidden = false;
    $('text').focus();
    connect();
  });
  onClick('forget-key', () => {
    askForKey();
    connect();
  });
}

wireSettings();
wireComposer();
wireConversation();
wireKey();
document.addEventListener('lost', () => showModel('lost', 'no connection'));
document.addEventListener('found', () => {
  // What comes back may be another model: its name, at least, must be right.
  if ($('model').dataset.state === 'lost') connect();
});
document.addEventListener('visibilitychange', () => { if (!document.hidden) watchLoad(); });
// A touch keyboard would cover half of the page before anything is read.
if (window.matchMedia('(hover: hover)').matches) $('text').focus();
connect();
