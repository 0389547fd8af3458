// Colours code. The highlighter is larger than all the rest, so it comes when code does.

let loading = null;

function load() {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement('script');
    script.src = '/vendor/highlight.min.js';
    script.onload = () => {
      // Debian keeps this version; its notice is not for whoever reads the page.
      window.hljs.configure({hideUpgradeWarningAcceptNoSupportOrSecurityUpdates: true});
      resolve(window.hljs);
    };
    script.onerror = reject;
    document.head.append(script);
  });
  return loading;
}

// Longer code would hold up the page.
const longest = 50000;

// Marks up the text of `code`, later if the highlighter is not there yet.
export function highlight(code, language) {
  if (!language || code.textContent.length > longest) return;
  if (window.hljs) {
    markUp(window.hljs, code, language);
    return;
  }
  load().then((hljs) => markUp(hljs, code, language), () => {});
}

function markUp(hljs, code, language) {
  if (!hljs.getLanguage(language)) return;
  const html = hljs.highlight(language, code.textContent, true).value;
  const fragment = window.DOMPurify.sanitize(
      html, {ALLOWED_TAGS: ['span'], ALLOWED_ATTR: ['class'], RETURN_DOM_FRAGMENT: true});
  code.replaceChildren(fragment);
}
