// Draws a component again only when its properties changed.

import { Component, createElement, type FunctionComponent, type VNode } from 'preact';

export function memo<P extends object>(
  view: FunctionComponent<P>,
  same: (a: P, b: P) => boolean = shallow,
): FunctionComponent<P> {
  class Memo extends Component<P> {
    override shouldComponentUpdate(next: P): boolean {
      return !same(this.props as P, next);
    }
    override render(): VNode {
      return createElement(view as FunctionComponent, this.props);
    }
  }
  return Memo as unknown as FunctionComponent<P>;
}

function shallow<P extends object>(a: P, b: P): boolean {
  const keys = Object.keys(a) as (keyof P)[];
  return keys.length === Object.keys(b).length && keys.every((k) => a[k] === b[k]);
}
