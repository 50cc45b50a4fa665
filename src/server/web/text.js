// Text into nodes. What a model wrote, or a server said, becomes text nodes and the few elements made
// here; it is never parsed as HTML, and nothing in it becomes a link.

// Children that are strings become text nodes.
export function make(tag, className, ...children) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  node.append(...children);
  return node;
}

// Control characters, such as the escape sequences of terminals, as signs one can see.
export function visible(text) {
  return text.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f]/g, (c) => {
    const code = c.charCodeAt(0);
    return code < 0x20 ? String.fromCharCode(0x2400 + code) : code === 0x7f ? '\u2421' : '\ufffd';
  });
}

// Paragraphs and code fences, enough Markdown to read an answer; the rest stays as it was written.
// A fence that is still open reaches to the end.
function blocksOf(text) {
  const blocks = [];
  let lines = [];
  let fence = '';
  const flush = (kind) => {
    if (lines.length > 0 || kind === 'code') blocks.push({kind, text: lines.join('\n')});
    lines = [];
  };
  for (const line of text.split('\n')) {
    const mark = /^ {0,3}(`{3,}|~{3,})([^`]*)$/.exec(line);
    if (fence !== '') {
      if (mark && mark[1].startsWith(fence) && mark[2].trim() === '') {
        flush('code');
        fence = '';
      } else {
        lines.push(line);
      }
    } else if (mark) {
      flush('text');
      fence = mark[1];
    } else if (line.trim() === '') {
      flush('text');
    } else if (/^#{1,6} /.test(line)) {
      flush('text');
      blocks.push({kind: 'heading', text: line.replace(/^#+ +/, '')});
    } else {
      lines.push(line);
    }
  }
  flush(fence === '' ? 'text' : 'code');
  return blocks;
}

function inlineOf(text) {
  const nodes = [];
  let at = 0;
  for (const match of text.matchAll(/`([^`\n]+)`|\*\*([^*\n]+)\*\*/g)) {
    nodes.push(text.slice(at, match.index));
    nodes.push(match[1] ? make('code', '', match[1]) : make('strong', '', match[2]));
    at = match.index + match[0].length;
  }
  nodes.push(text.slice(at));
  return nodes;
}

function blockNode({kind, text}) {
  if (kind !== 'code') return make('p', kind === 'heading' ? 'heading' : '', ...inlineOf(text));
  const node = make('pre', '', make('code', '', text));
  node.tabIndex = 0;  // it may scroll sideways, which the keyboard must reach
  return node;
}

// What each node was made from: a stream changes the last block, and the others keep their nodes
// and the reader's selection in them.
const madeFrom = new WeakMap();

function showBlocks(parent, blocks) {
  blocks.forEach((block, i) => {
    const old = parent.children[i];
    const source = `${block.kind} ${block.text}`;
    if (old && madeFrom.get(old) === source) return;
    const node = blockNode(block);
    madeFrom.set(node, source);
    if (old) old.replaceWith(node);
    else parent.append(node);
  });
  while (parent.children.length > blocks.length) parent.lastChild.remove();
}

export const showText = (parent, text) => showBlocks(parent, blocksOf(visible(text)));
