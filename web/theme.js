// Before the first paint, so that a dark page does not flash white.
try {
  const theme = JSON.parse(localStorage.getItem('cachalot.theme'));
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
} catch {
  // No storage: the system's colours.
}
