// The conversation on the page: an article for each message, and the way to its end.
import {$, chats, counted, page, say} from './state.js';
import {make, showText, visible} from './text.js';

function makeButton(label, action) {
  const button = make('button', 'quiet', label);
  button.type = 'button';
  button.addEventListener('click', action);
  return button;
}

// What the buttons below an answer do: {goOn, retry}, functions of the message.
let act = null;
export function onAnswerAction(actions) {
  act = actions;
}

const views = new WeakMap();

function userView(message) {
  const body = make('div', 'body');
  body.append(make('p', '', visible(message.content)));
  return {root: make('article', 'user', make('h2', 'unseen', 'You'), body), update() {}};
}

function assistantView(message, given) {
  const thoughts = make('div', 'thoughts');
  const summary = make('summary', '', 'Thinking');
  const reasoning = make('details', 'reasoning', summary, thoughts);
  const body = make('div', 'body');
  const progress = make('progress');
  progress.setAttribute('aria-label', 'Prompt read');
  const facts = make('span', 'facts');
  const actions = make('span', 'actions');
  const meta = make('div', 'meta', progress, facts, actions);
  const error = make('div', 'error');
  error.setAttribute('role', 'alert');
  const name = chats() ? 'Model' : 'Completion';
  const root = make('article', 'assistant', make('h2', 'unseen', name), reasoning, body, error, meta);
  let shownActions = '';
  let shownError = '';

  // A completion continues its prompt on the same line, with all of its white space.
  const showCompletion = () => {
    if (!body.firstChild) {
      body.append(make('p', '', make('span', 'given', visible(given)), make('span')));
    }
    body.firstChild.lastChild.textContent = visible(message.content);
  };

  // Nodes are made anew only when they change: a button must not lose the focus to a token.
  const showActions = (last) => {
    const wanted = actionsOf(message, last);
    const labels = wanted.map(([label]) => label).join();
    if (labels === shownActions) return;
    shownActions = labels;
    actions.replaceChildren(...wanted.map(([label, action]) => makeButton(label, action)));
  };

  const showError = (last) => {
    const text = message.state === 'failed' ? message.error : '';
    error.hidden = text === '';
    const source = `${last} ${text}`;
    if (source === shownError) return;
    shownError = source;
    error.replaceChildren(make('p', '', visible(text)));
    if (last) error.append(makeButton('Try again', () => act.retry(message)));
  };

  const update = () => {
    const last = message === page.messages.at(-1);
    const busy = page.running?.message === message;
    root.setAttribute('aria-busy', String(busy));
    reasoning.hidden = message.reasoning === '';
    showText(thoughts, message.reasoning);
    summary.textContent = busy && message.content === '' ? 'Thinking…' : 'Thoughts';
    if (chats()) showText(body, message.content);
    else showCompletion();
    const reading = busy ? page.running.progress : null;
    progress.hidden = reading === null;
    if (reading) {
      progress.max = reading.total;
      progress.value = reading.processed;
    }
    facts.textContent = factsOf(message);
    showActions(last);
    showError(last);
  };
  return {root, update};
}

function actionsOf(message, last) {
  if (message.state === 'running') return [];
  const actions = [];
  if (last && message.content !== '' && ['length', 'stopped'].includes(message.state)) {
    actions.push(['Continue', () => act.goOn(message)]);
  }
  if (last && message.state !== 'failed') actions.push(['Again', () => act.retry(message)]);
  if (message.content !== '' && navigator.clipboard) {
    actions.push(['Copy', () => {
      navigator.clipboard.writeText(message.content)
          .then(() => say('Copied'), () => say('The browser does not let the page copy'));
    }]);
  }
  return actions;
}

function factsOf(message) {
  const {stats} = message;
  const busy = page.running?.message === message;
  if (busy && page.running.progress) {
    const {processed, total} = page.running.progress;
    return `reading the prompt: ${processed.toLocaleString('en')} of ${counted(total, 'token')}`;
  }
  if (busy && stats.tokens === 0) return 'waiting for the first token…';
  const facts = [];
  if (stats.tokens > 0) facts.push(counted(stats.tokens, 'token'));
  if (stats.rate > 0) facts.push(`${stats.rate.toFixed(stats.rate < 10 ? 2 : 1)} tokens/s`);
  if (stats.prompt > 0) {
    facts.push(`prompt ${stats.prompt.toLocaleString('en')}, ` +
               `${stats.cached.toLocaleString('en')} of it from the cache`);
  }
  if (stats.seed !== '') facts.push(`seed ${stats.seed}`);
  if (message.state === 'length') facts.push('ended at the limit of tokens');
  if (message.state === 'stopped') facts.push('stopped');
  return facts.join(' · ');
}

export function nearEnd() {
  const box = $('scroller');
  return box.scrollHeight - box.scrollTop - box.clientHeight < 48;
}

export function toEnd() {
  $('scroller').scrollTop = $('scroller').scrollHeight;
  $('newest').hidden = true;
}

// Follows the end, unless the reader has scrolled away from it.
function following(change) {
  const follow = nearEnd();
  change();
  if (follow) toEnd();
  else $('newest').hidden = nearEnd();
}

function viewOf(message, i) {
  let view = views.get(message);
  if (!view) {
    view = message.role === 'user' ? userView(message)
                                   : assistantView(message, page.messages[i - 1]?.content ?? '');
    views.set(message, view);
  }
  return view;
}

function showAll() {
  const log = $('log');
  const roots = [];
  page.messages.forEach((message, i) => {
    // A completion shows its prompt itself.
    if (!chats() && message.role === 'user') return;
    const view = viewOf(message, i);
    view.update();
    roots.push(view.root);
  });
  roots.forEach((root, i) => {
    if (log.children[i] !== root) log.insertBefore(root, log.children[i] ?? null);
  });
  while (log.children.length > roots.length) log.lastChild.remove();
  $('welcome').hidden = page.messages.length > 0;
  $('clear').disabled = page.messages.length === 0 || page.running !== null;
  $('undo-bar').hidden = page.cleared === null;
}

// Brings the page up to the messages.
export function show() {
  following(showAll);
}

let framePending = false;

// The same for the answer under way alone, at most once a frame.
export function showSoon() {
  if (framePending) return;
  framePending = true;
  requestAnimationFrame(() => {
    framePending = false;
    if (page.running) following(views.get(page.running.message).update);
  });
}
