// Help texts: one is open at a time, inside the window, and Escape closes it.
(() => {
  const helps = [...document.querySelectorAll("details.help")];
  const inside = (text) => {
    text.style.translate = "none";
    const box = text.getBoundingClientRect(), over = box.right - document.documentElement.clientWidth + 8;
    text.style.translate = `${-Math.max(0, Math.min(over, box.left - 8))}px 0`;
  };
  for (const help of helps) {
    help.addEventListener("toggle", () => {
      if (!help.open) return;
      helps.filter((other) => other !== help).forEach((other) => { other.open = false; });
      inside(help.querySelector("p"));
    });
  }
  document.addEventListener("keydown", (event) => {
    const open = helps.find((help) => help.open);
    if (event.key !== "Escape" || !open) return;
    open.open = false;
    open.querySelector("summary").focus();
  });
})();
