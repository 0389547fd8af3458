// Numbers and times as people read them.

const whole = new Intl.NumberFormat('en');

export const count = (number) => whole.format(number);

export function seconds(value) {
  if (value < 9.95) return `${value.toFixed(1)} s`;
  if (value < 60) return `${Math.round(value)} s`;
  const all = Math.round(value);
  return `${Math.floor(all / 60)} min ${all % 60} s`;
}

export function rate(value) {
  return `${value < 10 ? value.toFixed(1) : count(Math.round(value))} tok/s`;
}

export function plural(number, one, many = one + 's') {
  return `${count(number)} ${number === 1 ? one : many}`;
}

// In which part of the list a conversation stands.
export function age(time, now = Date.now()) {
  const day = (moment) => new Date(moment).setHours(0, 0, 0, 0);
  const days = Math.round((day(now) - day(time)) / 86400000);
  if (days <= 0) return 'Today';
  if (days === 1) return 'Yesterday';
  if (days <= 7) return 'Last 7 days';
  if (days <= 30) return 'Last 30 days';
  return new Date(time).toLocaleDateString('en', {month: 'long', year: 'numeric'});
}
