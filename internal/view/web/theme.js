// Dark and light. The reader's choice is kept; without one the system's holds.

const place = 'weir-theme';
const dark = matchMedia('(prefers-color-scheme: dark)');

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  dispatchEvent(new Event('theme'));
}

const systemTheme = () => (dark.matches ? 'dark' : 'light');

// useTheme sets the theme, and follows the system's where none was chosen.
export function useTheme() {
  setTheme(localStorage.getItem(place) || systemTheme());
  dark.addEventListener('change', () => {
    if (!localStorage.getItem(place)) setTheme(systemTheme());
  });
}

// flipTheme takes the other theme.
export function flipTheme() {
  const next = document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark';
  localStorage.setItem(place, next);
  setTheme(next);
}
