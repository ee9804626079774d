// Light, dark, or system default. The choice is stored in this browser.

const KEY = "restow-theme";
const NEXT = { system: "light", light: "dark", dark: "system" };
const SIGN = { system: "◐", light: "☀", dark: "☾" };
const NAME = { system: "system default", light: "light", dark: "dark" };

export function startTheme(button) {
  let theme = read();
  const show = () => {
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.textContent = SIGN[theme];
    button.setAttribute("aria-label", `Theme: ${NAME[theme]}`);
    button.title = `Theme: ${NAME[theme]}`;
  };
  button.addEventListener("click", () => {
    theme = NEXT[theme];
    try {
      localStorage.setItem(KEY, theme);
    } catch {
      // A browser may deny storage; then the choice lasts until the page is closed.
    }
    show();
  });
  show();
}

function read() {
  try {
    const found = localStorage.getItem(KEY);
    return found in NEXT ? found : "system";
  } catch {
    return "system";
  }
}
