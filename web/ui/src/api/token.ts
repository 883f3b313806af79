// The per-browser token. It lives in local storage, not in a cookie: cookies
// ignore ports, so another local server could read or ride on one.

const key = 'dsh-web.token';

export function storedToken(): string | null {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

export function storeToken(token: string): void {
  try {
    localStorage.setItem(key, token);
  } catch {
    // Storage may be blocked. Then the token lasts as long as the page.
  }
}

export function forgetToken(): void {
  try {
    localStorage.removeItem(key);
  } catch {
    // Nothing was stored either.
  }
}

/** The login code in a fragment such as `#code=AbC`, or null. */
export function codeInFragment(fragment: string): string | null {
  const match = /^#code=([^&]+)/.exec(fragment);
  return match?.[1] ? decodeURIComponent(match[1]) : null;
}
