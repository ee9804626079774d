// Light, dark, or as the system says. The choice is kept in this browser.

const KEY = "restow-theme";
const NEXT = { system: "light", light: "dark", dark: "system" };
const SIGN = { system: "◐", light: "☀", dark: "☾" };
const NAME = { system: "as the system", light: "light", dark: "dark" };

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
      // A browser may refuse to keep anything; then it lasts as long as the page.
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
