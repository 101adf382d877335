// A button to copy each block of code, without the removed lines. Summaries in the search's results
// are read from the pages, which a browser does not allow where the site is opened as files.
(() => {
  if (location.protocol === "file:" && typeof DOCUMENTATION_OPTIONS !== "undefined") {
    DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
  }

  const textOf = (block) =>
    [...block.querySelectorAll("ins, span[data-n]")].map((line) => line.textContent).join("");

  const write = async (text) => {
    if (navigator.clipboard) return navigator.clipboard.writeText(text);
    const area = document.createElement("textarea"); // a page that is not served has no clipboard
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  };

  const openTarget = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
  };

  document.addEventListener("DOMContentLoaded", () => {
    for (const block of document.querySelectorAll(".lines")) {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "copy";
      button.textContent = "Copy";
      button.addEventListener("click", async () => {
        await write(textOf(block));
        button.textContent = "Copied";
        setTimeout(() => (button.textContent = "Copy"), 1500);
      });
      block.append(button);
    }
    openTarget();
  });
  window.addEventListener("hashchange", openTarget);
})();
