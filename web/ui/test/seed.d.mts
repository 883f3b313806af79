export const corpus: string[];
export function seedSessions(host: unknown): void;
