package scope

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// world is the container under test beside a model of it that is as dumb as possible: every question
// is answered by walking flat lists.
type world struct {
	keys  []Key[string]
	table Table[string]
	chain Chain[[]string, []string]
	nodes []*node
	log   []string // what was undone, in order
	seq   int
}

type node struct {
	id       int
	s        *Scope
	parent   *node
	layer    bool
	bounded  bool
	isolates []int
	closed   bool
	holds    []held // oldest first
}

type held struct {
	kind  string // child, service, entry, listener, effect
	key   int    // service
	name  string // entry, listener
	value string
	child *node
	fails bool
}

func (n *node) realm(key int) *node {
	for n.parent != nil && !slices.Contains(n.isolates, key) {
		n = n.parent
	}
	return n
}

func (n *node) nearestLayer() *node {
	for !n.layer {
		n = n.parent
	}
	return n
}

// outside reports whether target lies outside the nearest bounded scope around n.
func (n *node) outside(target *node) bool {
	for n != nil && !n.bounded {
		n = n.parent
	}
	if n == nil {
		return false
	}
	for ; target != nil; target = target.parent {
		if target == n {
			return false
		}
	}
	return true
}

func (w *world) open() []*node {
	var open []*node
	for _, n := range w.nodes {
		if !n.closed {
			open = append(open, n)
		}
	}
	return open
}

// each calls f for everything held in open scopes.
func (w *world) each(f func(*node, held)) {
	for _, n := range w.open() {
		for _, h := range n.holds {
			f(n, h)
		}
	}
}

func (w *world) lookup(n *node, key int) (string, bool) {
	value, found := "", false
	w.each(func(o *node, h held) {
		if h.kind == "service" && h.key == key && o.realm(key) == n.realm(key) {
			value, found = h.value, true
		}
	})
	return value, found
}

func (w *world) view(n *node) []string {
	best := map[string]string{}
	for l := n; l != nil; l = l.parent {
		if !l.layer {
			continue
		}
		inLayer := map[string]string{}
		w.each(func(o *node, h held) {
			if h.kind == "entry" && o.nearestLayer() == l {
				inLayer[h.name] = h.value
			}
		})
		for name, v := range inLayer {
			if _, shadowed := best[name]; !shadowed {
				best[name] = v
			}
		}
	}
	var out []string
	for name, v := range best {
		out = append(out, name+"="+v)
	}
	slices.Sort(out)
	return out
}

// listeners are what n sees: by place, then by depth of the layer, then by age. The value of a
// listener is its age, zero-padded; its name begins with the digit of its place.
func (w *world) listeners(n *node) []string {
	var out []string
	depth := func(n *node) int {
		d := 0
		for ; n != nil; n = n.parent {
			d++
		}
		return d
	}
	var sortable []string
	for l := n; l != nil; l = l.parent {
		if !l.layer {
			continue
		}
		w.each(func(o *node, h held) {
			if h.kind == "listener" && o.nearestLayer() == l {
				sortable = append(sortable, fmt.Sprintf("%s|%04d|%s", h.name, depth(l), h.value))
			}
		})
	}
	slices.Sort(sortable)
	for _, s := range sortable {
		out = append(out, s[strings.LastIndex(s, "|")+1:])
	}
	return out
}

// closeModel marks n closed and returns what must have been undone, in order, and how many failures.
func (w *world) closeModel(n *node) (undone []string, failures int) {
	for _, h := range slices.Backward(n.holds) {
		switch h.kind {
		case "child":
			if !h.child.closed {
				u, f := w.closeModel(h.child)
				undone, failures = append(undone, u...), failures+f
			}
		case "effect":
			undone = append(undone, h.value)
			if h.fails {
				failures++
			}
		}
	}
	n.closed, n.holds = true, nil
	if p := n.parent; p != nil && !p.closed {
		p.holds = slices.DeleteFunc(p.holds, func(h held) bool { return h.child == n })
	}
	return undone, failures
}

func TestContainerAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{keys: []Key[string]{NewKey[string]("k0"), NewKey[string]("k1"), NewKey[string]("k2")}}
		root := &node{s: New("root"), layer: true}
		w.nodes = []*node{root}
		defer root.s.Close(context.Background())
		pick := func() *node {
			// Closed scopes are picked too, to see them refuse.
			if rapid.IntRange(0, 9).Draw(t, "any") == 0 {
				return rapid.SampledFrom(w.nodes).Draw(t, "scope")
			}
			open := w.open()
			if len(open) == 0 {
				return root
			}
			return rapid.SampledFrom(open).Draw(t, "open")
		}
		fresh := func() string { w.seq++; return fmt.Sprintf("%04d", w.seq) }
		want := func(err error, ok bool, format string, args ...any) {
			if (err == nil) != ok {
				t.Fatalf(format+": got error %v, want success %v", append(args, err, ok)...)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"child": func(t *rapid.T) {
				n := pick()
				c := &node{id: len(w.nodes), parent: n, layer: rapid.Bool().Draw(t, "layer"), bounded: rapid.IntRange(0, 3).Draw(t, "bounded") == 0}
				var opts []Option
				if c.layer {
					opts = append(opts, Layer())
				}
				if c.bounded {
					opts = append(opts, Bounded())
				}
				for i, k := range w.keys {
					if rapid.IntRange(0, 3).Draw(t, "isolate") == 0 {
						c.isolates = append(c.isolates, i)
						opts = append(opts, k.Isolate())
					}
				}
				s, err := n.s.Child(fmt.Sprint("c", c.id), opts...)
				want(err, !n.closed, "child of %s", n.s.Path())
				if err == nil {
					c.s = s
					n.holds = append(n.holds, held{kind: "child", child: c})
					w.nodes = append(w.nodes, c)
				}
			},
			"provide": func(t *rapid.T) {
				n, key, v := pick(), rapid.IntRange(0, 2).Draw(t, "key"), fresh()
				_, taken := w.lookup(n, key)
				ok := !n.closed && !taken && !n.outside(n.realm(key))
				want(Provide(n.s, w.keys[key], v), ok, "provide %s at %s", w.keys[key], n.s.Path())
				if ok {
					n.holds = append(n.holds, held{kind: "service", key: key, value: v})
				}
			},
			"entry": func(t *rapid.T) {
				n, name, v := pick(), rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name"), fresh()
				taken := false
				w.each(func(o *node, h held) {
					taken = taken || h.kind == "entry" && h.name == name && o.nearestLayer() == n.nearestLayer()
				})
				ok := !n.closed && !taken && !n.outside(n.nearestLayer())
				want(w.table.Add(n.s, name, v), ok, "add %s at %s", name, n.s.Path())
				if ok {
					n.holds = append(n.holds, held{kind: "entry", name: name, value: v})
				}
			},
			"listener": func(t *rapid.T) {
				n, place, v := pick(), rapid.IntRange(0, 2).Draw(t, "place"), fresh()
				add := []func(*Scope, string, func(context.Context, []string, func(context.Context, []string) ([]string, error)) ([]string, error)) error{w.chain.First, w.chain.Use, w.chain.Last}[place]
				err := add(n.s, v, func(ctx context.Context, in []string, next func(context.Context, []string) ([]string, error)) ([]string, error) {
					return next(ctx, append(in, v))
				})
				ok := !n.closed && !n.outside(n.nearestLayer())
				want(err, ok, "listen at %s", n.s.Path())
				if ok {
					n.holds = append(n.holds, held{kind: "listener", name: fmt.Sprint(place), value: v})
				}
			},
			"own": func(t *rapid.T) {
				n, v, how := pick(), fresh(), rapid.SampledFrom([]string{"ok", "ok", "fails", "panics", "release fails", "release panics"}).Draw(t, "how")
				err := n.s.Own(v, func(context.Context) (func(context.Context) error, error) {
					switch how {
					case "fails":
						return nil, errors.New("no")
					case "panics":
						panic("boom")
					}
					return func(context.Context) error {
						w.log = append(w.log, v)
						switch how {
						case "release fails":
							return errors.New("release said no")
						case "release panics":
							panic("release boom")
						}
						return nil
					}, nil
				})
				ok := !n.closed && how != "fails" && how != "panics"
				want(err, ok, "own at %s", n.s.Path())
				if ok {
					n.holds = append(n.holds, held{kind: "effect", value: v, fails: strings.HasPrefix(how, "release")})
				}
			},
			"close": func(t *rapid.T) {
				n := pick()
				if n == root && rapid.IntRange(0, 5).Draw(t, "really") > 0 {
					return
				}
				if n.closed {
					n.s.Close(context.Background()) // gives the first answer again
					return
				}
				w.log = nil
				err := n.s.Close(context.Background())
				undone, failures := w.closeModel(n)
				if !slices.Equal(w.log, undone) {
					t.Fatalf("close %s undid %v, want %v", n.s.Path(), w.log, undone)
				}
				if (err != nil) != (failures > 0) {
					t.Fatalf("close %s: %v, want %d failures", n.s.Path(), err, failures)
				}
			},
			"": func(t *rapid.T) {
				for _, n := range w.open() {
					for i, k := range w.keys {
						got, ok := Get(n.s, k)
						wantV, wantOK := w.lookup(n, i)
						if got != wantV || ok != wantOK {
							t.Fatalf("get %s at %s: %q %v, want %q %v", k, n.s.Path(), got, ok, wantV, wantOK)
						}
					}
					var view []string
					for _, e := range w.table.View(n.s) {
						view = append(view, e.Name+"="+e.Value)
					}
					if want := w.view(n); !slices.Equal(view, want) {
						t.Fatalf("view of %s: %v, want %v", n.s.Path(), view, want)
					}
					ran, err := w.chain.Run(context.Background(), n.s, nil, func(_ context.Context, in []string) ([]string, error) { return in, nil })
					if want := w.listeners(n); err != nil || !slices.Equal(ran, want) {
						t.Fatalf("chain at %s: %v %v, want %v", n.s.Path(), ran, err, want)
					}
					if got := len(n.s.Audit().Children); got != len(n.holds) {
						t.Fatalf("audit of %s has %d lines, want %d", n.s.Path(), got, len(n.holds))
					}
				}
			},
		})
		root.s.Close(context.Background())
		if n := len(w.table.files.lists) + len(w.chain.files.lists) + len(root.s.slots); n != 0 {
			t.Fatalf("%d registrations outlived the root", n)
		}
	})
}
