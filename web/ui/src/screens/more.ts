// The screens that most visits do not need, in a chunk of their own.

export { PresetsScreen } from './presets';
export { SettingsScreen } from './settings';
