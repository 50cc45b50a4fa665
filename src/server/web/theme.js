// Colours by the system's choice or the reader's. Not a module, because those run after the first
// paint, and a page that flashes white in the dark hurts.
'use strict';

(() => {
  const apply = (theme) => {
    if (theme === 'auto') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
  };
  let chosen = 'auto';
  try {
    const stored = localStorage.getItem('kipp.theme');
    if (['light', 'dark'].includes(stored)) chosen = stored;
  } catch {
    // Storage is forbidden: the system's choice, then.
  }
  apply(chosen);
  document.addEventListener('DOMContentLoaded', () => {
    const choice = document.getElementById('theme');
    choice.value = chosen;
    choice.addEventListener('change', () => {
      apply(choice.value);
      try {
        localStorage.setItem('kipp.theme', choice.value);
      } catch {
        // It lasts until the page goes.
      }
    });
  });
})();
