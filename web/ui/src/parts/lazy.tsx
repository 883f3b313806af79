// A screen whose code is fetched when it is first shown.

import type { ComponentChild, ComponentType } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { fail } from '../store/app';
import { Spinner } from './controls';

/** `wait` is shown until then. */
export function lazy<P extends object>(
  load: () => Promise<ComponentType<P>>,
  wait: ComponentChild = <p class="page page--wait"><Spinner /></p>,
): ComponentType<P> {
  let loaded: ComponentType<P> | null = null;
  return function Lazy(props: P) {
    const [, setReady] = useState(loaded !== null);
    useEffect(() => {
      if (loaded) return;
      load().then((screen) => {
        loaded = screen;
        setReady(true);
      }, fail);
    }, []);
    const Screen = loaded;
    return Screen ? <Screen {...props} /> : wait;
  };
}
