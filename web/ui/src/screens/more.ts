// The screens that most visits do not need, in a chunk of their own.

export { LeaveDialog } from './leave';
export { PresetsScreen } from './presets';
export { SettingsScreen } from './settings';
