import { render } from 'preact';
import { App } from './app';
import { fail, start } from './store/app';
import { followAddressBar } from './store/route';
import { restoreTheme } from './store/theme';
import './styles/base.css';
import './styles/controls.css';
import './styles/frame.css';
import './styles/screens.css';
import './styles/transcript.css';
import './styles/code.css';

restoreTheme();
render(<App />, document.getElementById('app')!);
// The login code is read and removed before the routes look at the fragment.
void start().catch(fail);
followAddressBar();
