// Renders the formulas of a page. arithmatex marks them as \( ... \) and \[ ... \].
(typeof document$ === "undefined" ? { subscribe: (f) => document.addEventListener("DOMContentLoaded", f) } : document$)
  .subscribe(() => {
    for (const node of document.querySelectorAll(".arithmatex")) {
      const text = node.textContent.trim();
      katex.render(text.slice(2, -2), node, { displayMode: text.startsWith("\\["), throwOnError: false });
    }
  });
