// One answer: the request for it, the stream it comes in, and how it ends.
import {$, chats, counted, kNoStats, page, saveConversation, say} from './state.js';
import {Trouble, call, eventsOf, inWords, troubleOf} from './server.js';
import {seedDigits, settingsAreValid, settingsForRequest, systemMessage} from './settings.js';
import {watchLoad} from './load.js';
import {show, showSoon, toEnd} from './view.js';

function requestFor(message) {
  const before = page.messages.slice(0, page.messages.indexOf(message));
  const body = {
    model: page.model.id,
    ...(chats() ? {messages: conversationFor(before, message)}
                : {prompt: before.at(-1).content + message.content}),
    stream: true,
    stream_options: {include_usage: true, continuous_usage_stats: true},
    return_progress: true,
    ...settingsForRequest(),
  };
  const json = JSON.stringify(body);
  const seed = seedDigits();
  return seed === '' ? json : `${json.slice(0, -1)},"seed":${seed}}`;
}

// The server continues a last message of the assistant. Answers that never began are left out.
function conversationFor(before, message) {
  const sent = [];
  if (systemMessage().trim() !== '') sent.push({role: 'system', content: systemMessage()});
  for (const {role, content, reasoning} of [...before, message]) {
    if (role === 'user') {
      sent.push({role, content});
    } else if (content !== '') {
      sent.push(reasoning ? {role, content, reasoning_content: reasoning} : {role, content});
    }
  }
  return sent;
}

// Tokens per second over the last two seconds; 0 while a fifth of a second has not passed.
function liveRate(tokens) {
  const now = performance.now();
  const {marks} = page.running;
  marks.push({now, tokens});
  while (marks.length > 2 && now - marks[0].now > 2000) marks.shift();
  const seconds = (now - marks[0].now) / 1000;
  return seconds > 0.2 ? (tokens - marks[0].tokens) / seconds : 0;
}

// By finish reason, where it is not that the model was done.
const kStates = {length: 'length', abort: 'stopped'};

function takeChunk(message, data) {
  const chunk = JSON.parse(data);
  if (chunk.error) throw new Trouble(String(chunk.error.message ?? 'The server gave up.'));
  const {stats} = message;
  const choice = chunk.choices?.[0];
  if (chunk.prompt_progress) {
    const {processed, total} = chunk.prompt_progress;
    page.running.progress = processed < total ? {processed, total} : null;
  }
  if (choice) {
    message.reasoning += choice.delta?.reasoning_content ?? '';
    message.content += choice.text ?? choice.delta?.content ?? '';
    if (choice.finish_reason) message.state = kStates[choice.finish_reason] ?? 'done';
  }
  if (chunk.usage) {
    stats.prompt = chunk.usage.prompt_tokens;
    stats.cached = chunk.usage.prompt_tokens_details?.cached_tokens ?? 0;
    stats.tokens = chunk.usage.completion_tokens;
    if (message.state === 'running' && stats.tokens > 0) stats.rate = liveRate(stats.tokens);
  }
  if (stats.tokens > 0) page.running.progress = null;
  if (chunk.timings) stats.rate = chunk.timings.predicted_per_second;
  // From the text, because parsing has rounded it. Quotes inside of strings are escaped, so that
  // nothing a model writes can be taken for it.
  if (chunk.kipp) stats.seed = /"kipp":\s*\{\s*"seed":\s*(-?\d+)/.exec(data)?.[1] ?? '';
}

async function readAnswer(message) {
  const response = await call(chats() ? 'v1/chat/completions' : 'v1/completions', {
    method: 'POST',
    headers: {'Content-Type': 'application/json'},
    body: requestFor(message),
    signal: page.running.controller.signal,
  });
  if (!response.ok) throw await troubleOf(response);
  let saved = performance.now();
  for await (const data of eventsOf(response)) {
    if (data === '[DONE]') return;
    takeChunk(message, data);
    showSoon();
    if (performance.now() - saved > 1000) {
      saved = performance.now();
      saveConversation();
    }
  }
  throw new Trouble('The answer broke off before its end.');
}

// Send and Stop take each other's place; the focus must not fall through to nowhere.
export function showBusy() {
  const busy = page.running !== null;
  const hadFocus = [$('send'), $('stop')].includes(document.activeElement);
  $('send').hidden = busy;
  $('stop').hidden = !busy;
  $('send').disabled = !page.model;
  if (hadFocus) $('text').focus();
}

const mayBegin = () => !page.running && page.model !== null && settingsAreValid();

// Fills an answer, or goes on with one that has begun.
async function generate(message) {
  const controller = new AbortController();
  page.running = {controller, message, marks: [], progress: null};
  page.cleared = null;
  Object.assign(message, {state: 'running', error: '', stats: {...kNoStats}});
  say('The model is answering');
  showBusy();
  show();
  toEnd();
  saveConversation();
  try {
    await readAnswer(message);
    if (message.state === 'running') message.state = 'done';
    say(`The answer is complete: ${counted(message.stats.tokens, 'token')}`);
  } catch (error) {
    if (controller.signal.aborted) {
      message.state = 'stopped';
      say('Stopped');
    } else {
      message.state = 'failed';
      message.error = inWords(error);
    }
  }
  controller.abort();  // lets go of a stream that was left before its end
  page.running = null;
  showBusy();
  show();
  saveConversation();
  watchLoad();
}

// Whether it was sent.
export function send(text) {
  if (text.trim() === '' || !mayBegin()) return false;
  const answer = {role: 'assistant', content: '', reasoning: '', state: 'running', error: '',
                  stats: {...kNoStats}};
  page.messages.push({role: 'user', content: text}, answer);
  generate(answer);
  return true;
}

export function goOn(message) {
  if (mayBegin()) generate(message);
}

export function retry(message) {
  if (!mayBegin()) return;
  Object.assign(message, {content: '', reasoning: ''});
  generate(message);
}

export function stop() {
  page.running?.controller.abort();
}
