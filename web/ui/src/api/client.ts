// The REST client. Every failure is an ApiError with the host's code, so that
// callers match on codes and never on text. A request that did not reach the
// host has the code `network`.

import type { Problem } from './wire';
import { forgetToken, storedToken, storeToken } from './token';

export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly problem?: Problem,
  ) {
    super(message);
    this.name = 'ApiError';
  }
}

/** The directory the page is served from, with a slash at the end. */
export function baseUrl(): URL {
  return new URL('./', document.baseURI);
}

export class Client {
  private token = storedToken();

  /** onUnauthorized is called whenever the host refuses the token. */
  constructor(
    private readonly base: URL,
    private readonly onUnauthorized: () => void,
  ) {}

  url(path: string): URL {
    return new URL(`api/v1/${path}`, this.base);
  }

  get<T>(path: string): Promise<T> {
    return this.request<T>('GET', path);
  }

  post<T>(path: string, body: unknown = {}): Promise<T> {
    return this.request<T>('POST', path, body);
  }

  put<T>(path: string, body: unknown): Promise<T> {
    return this.request<T>('PUT', path, body);
  }

  patch<T>(path: string, body: unknown): Promise<T> {
    return this.request<T>('PATCH', path, body);
  }

  delete<T>(path: string): Promise<T> {
    return this.request<T>('DELETE', path);
  }

  /** Trades a login code for a token of this browser. */
  async exchange(code: string): Promise<void> {
    const answer = await this.request<{ token: string }>('POST', 'auth/exchange', { code });
    this.token = answer.token;
    storeToken(answer.token);
  }

  /** A single-use ticket for one websocket, or null where the host wants none. */
  async ticket(): Promise<string | null> {
    try {
      return (await this.post<{ ticket: string }>('auth/ticket')).ticket;
    } catch (error) {
      if (error instanceof ApiError && error.status === 404) return null;
      throw error;
    }
  }

  /** Reads a whole file, for downloads that need the token. */
  async blob(path: string): Promise<Blob> {
    return (await this.send('GET', path)).blob();
  }

  private async request<T>(method: string, path: string, body?: unknown): Promise<T> {
    const response = await this.send(method, path, body);
    if (response.status === 204) return undefined as T;
    const text = await response.text();
    return (text ? JSON.parse(text) : undefined) as T;
  }

  private async send(method: string, path: string, body?: unknown): Promise<Response> {
    const headers: Record<string, string> = {};
    if (this.token) headers['Authorization'] = `Bearer ${this.token}`;
    if (body !== undefined) headers['Content-Type'] = 'application/json';
    let response: Response;
    try {
      response = await fetch(this.url(path), {
        method,
        headers,
        body: body === undefined ? null : JSON.stringify(body),
        cache: 'no-store',
        credentials: 'omit',
      });
    } catch {
      throw new ApiError(0, 'network', 'The host did not answer.');
    }
    if (response.ok) return response;
    const problem = await readProblem(response);
    if (response.status === 401 && path !== 'auth/exchange') {
      this.token = null;
      forgetToken();
      this.onUnauthorized();
    }
    throw new ApiError(response.status, problem.code, problemText(problem), problem);
  }
}

async function readProblem(response: Response): Promise<Problem> {
  try {
    const body = (await response.json()) as Partial<Problem>;
    return { ...body, status: response.status, code: body.code ?? `http-${response.status}` };
  } catch {
    return { status: response.status, code: `http-${response.status}` };
  }
}

function problemText(problem: Problem): string {
  const fields = (problem.errors ?? [])
    .map((e) => [e.location, e.message].filter(Boolean).join(': '))
    .filter(Boolean);
  const main = problem.detail ?? problem.title ?? `The host answered ${problem.status}.`;
  return fields.length ? `${main} (${fields.join('; ')})` : main;
}
