package scope

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

var bg = context.Background()

func child(t *testing.T, s *Scope, name string, opts ...Option) *Scope {
	t.Helper()
	c, err := s.Child(name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q does not say %q", err, p)
		}
	}
}

func own(t *testing.T, s *Scope, label string, release func(context.Context) error) {
	t.Helper()
	if err := s.Own(label, func(context.Context) (func(context.Context) error, error) { return release, nil }); err != nil {
		t.Fatal(err)
	}
}

func TestSecondProviderNamesTheFirst(t *testing.T) {
	root := New("host")
	defer root.Close(bg)
	k := NewKey[int]("clock")
	a := child(t, root, "a")
	if err := Provide(a, k, 1); err != nil {
		t.Fatal(err)
	}
	wantError(t, Provide(child(t, root, "b"), k, 2), "host/b", "clock", "already provided by host/a")
	if err := a.Close(bg); err != nil {
		t.Fatal(err)
	}
	if err := Provide(root, k, 3); err != nil {
		t.Fatal("the slot of a closed provider is free again:", err)
	}
}

func TestIsolateShadowsOnlyInside(t *testing.T) {
	root := New("host")
	defer root.Close(bg)
	k := NewKey[string]("fs")
	if err := Provide(root, k, "confined"); err != nil {
		t.Fatal(err)
	}
	agent := child(t, root, "agent", Layer(), Bounded())
	group := child(t, agent, "filesystem", k.Isolate())
	_, err := Require(group, k)
	wantError(t, err, "host/agent/filesystem", "nothing provides fs")
	if err := Provide(child(t, group, "local"), k, "bare"); err != nil {
		t.Fatal(err)
	}
	inner := child(t, child(t, group, "editor"), "deeper")
	for _, c := range []struct {
		at   *Scope
		want string
	}{{inner, "bare"}, {group, "bare"}, {agent, "confined"}, {root, "confined"}} {
		if got, _ := Require(c.at, k); got != c.want {
			t.Errorf("at %s: %q, want %q", c.at.Path(), got, c.want)
		}
	}
	if got, ok := Below(root, k, "agent", "filesystem"); !ok || got != "bare" {
		t.Errorf("below: %q %v", got, ok)
	}
	if _, ok := Below(root, k, "agent", "nowhere"); ok {
		t.Error("below found a scope that doesn't exist")
	}
}

func TestZeroKeyNamesNothing(t *testing.T) {
	root := New("host")
	defer root.Close(bg)
	var k Key[int]
	wantError(t, Provide(root, k, 1), "not made by NewKey")
	if _, ok := Get(root, k); ok {
		t.Error("the zero key found something")
	}
	_ = child(t, root, "c", k.Isolate()).Audit()
}

func TestKeysWithOneNameAreTwo(t *testing.T) {
	root := New("host")
	defer root.Close(bg)
	a, b := NewKey[int]("same"), NewKey[int]("same")
	if err := Provide(root, a, 1); err != nil {
		t.Fatal(err)
	}
	if _, ok := Get(root, b); ok {
		t.Error("a key's name is not its identity")
	}
}

// A leak is refused at the call, whenever and from wherever it is made.
func TestBoundedRefusesLeaks(t *testing.T) {
	root := New("host")
	defer root.Close(bg)
	k := NewKey[int]("terminals")
	var table Table[int]
	var chain Chain[int, int]
	pass := func(ctx context.Context, in int, next func(context.Context, int) (int, error)) (int, error) {
		return next(ctx, in)
	}
	mount := child(t, child(t, root, "agent", Layer()), "preset", Bounded())
	row := child(t, mount, "row")
	attempts := map[string]func() error{
		"service":  func() error { return Provide(row, k, 1) },
		"entry":    func() error { return table.Add(row, "x", 1) },
		"listener": func() error { return chain.Use(row, "x", pass) },
	}
	for kind, attempt := range attempts {
		wantError(t, attempt(), kind, "would leak", "host/agent/preset is bounded")
		late := make(chan error)
		if err := row.Go("late "+kind, func(context.Context) error { late <- attempt(); return nil }); err != nil {
			t.Fatal(err)
		}
		wantError(t, <-late, "would leak")
		time.AfterFunc(time.Millisecond, func() { late <- attempt() })
		wantError(t, <-late, "would leak")
	}
	if n := len(row.Audit().Children); n != 0 {
		t.Errorf("refused attempts left %d effects", n)
	}
	if err := Provide(child(t, mount, "group", k.Isolate()), k, 1); err != nil {
		t.Error("inside its own realm it may:", err)
	}
}

func TestDuplicateEntryNamesFirstOwner(t *testing.T) {
	root := New("host")
	defer root.Close(bg)
	var table Table[string]
	if err := table.Add(child(t, root, "a"), "bash", "1"); err != nil {
		t.Fatal(err)
	}
	wantError(t, table.Add(child(t, root, "b"), "bash", "2"), `"bash"`, "already added by host/a")
}

func TestCloseGoesOnAfterErrorsAndPanics(t *testing.T) {
	root := New("host")
	var order []string
	record := func(name string, err error) func(context.Context) error {
		return func(context.Context) error {
			order = append(order, name)
			if name == "boom" {
				panic("released badly")
			}
			return err
		}
	}
	sad := errors.New("sad")
	own(t, root, "first", record("first", nil))
	own(t, root, "boom", record("boom", nil))
	own(t, child(t, root, "kid"), "inner", record("inner", sad))
	own(t, root, "last", record("last", nil))
	err := root.Close(bg)
	if diff := cmp.Diff([]string{"last", "inner", "boom", "first"}, order); diff != "" {
		t.Error(diff)
	}
	wantError(t, err, "host/kid: inner: sad", "host: boom: panic: released badly")
	if !errors.Is(err, sad) {
		t.Error("the cause is lost")
	}
	if again := root.Close(bg); again == nil || again.Error() != err.Error() {
		t.Errorf("a second Close said %v", again)
	}
}

func TestClosedScopeRefuses(t *testing.T) {
	root := New("host")
	root.Close(bg)
	var table Table[int]
	k := NewKey[int]("k")
	nothing := func(context.Context) (func(context.Context) error, error) {
		t.Error("acquired on a closed scope")
		return nil, nil
	}
	_, err := root.Child("c")
	for _, err := range []error{err, Provide(root, k, 1), table.Add(root, "x", 1), root.Own("x", nothing),
		root.Go("x", func(context.Context) error { t.Error("ran"); return nil })} {
		if !errors.Is(err, errClosed) {
			t.Errorf("%v", err)
		}
	}
	if context.Cause(root.Context()) != errClosed {
		t.Error("the context's cause is not the close")
	}
}

func TestScopeNames(t *testing.T) {
	root := New("host")
	defer root.Close(bg)
	for _, name := range []string{"", "a/b"} {
		if _, err := root.Child(name); err == nil {
			t.Errorf("%q was taken as a name", name)
		}
	}
}

func TestConcurrentCloseReleasesOnce(t *testing.T) {
	root := New("host")
	var released atomic.Int32
	for i := range 20 {
		own(t, child(t, root, fmt.Sprint(i)), "x", func(context.Context) error { released.Add(1); return errors.New("no") })
	}
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() { errs[i] = root.Close(bg) })
	}
	wg.Wait()
	if n := released.Load(); n != 20 {
		t.Errorf("%d releases, want 20", n)
	}
	for _, err := range errs {
		if err == nil || err.Error() != errs[0].Error() {
			t.Errorf("closers disagree: %v, %v", err, errs[0])
		}
	}
}

func TestDeadlineNamesWhatDidNotStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := New("host")
		agent := child(t, root, "agent")
		let := make(chan struct{})
		var released []string
		own(t, agent, "quick", func(context.Context) error { released = append(released, "quick"); return nil })
		own(t, agent, "boom", func(context.Context) error { panic("released badly") })
		own(t, agent, "slow release", func(context.Context) error { <-let; return nil })
		if err := agent.Go("deaf loop", func(context.Context) error { <-let; return nil }); err != nil {
			t.Fatal(err)
		}
		acquired := make(chan error)
		go func() {
			acquired <- agent.Own("slow start", func(context.Context) (func(context.Context) error, error) {
				<-let
				return func(ctx context.Context) error {
					if ctx.Err() != nil {
						t.Error("the late release got a dead context")
					}
					released = append(released, "slow start")
					return nil
				}, nil
			})
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(bg, 2*time.Second)
		defer cancel()
		start := time.Now()
		err := root.Close(ctx)
		wantError(t, err, "host/agent: slow release: did not stop", "host/agent: deaf loop: did not stop", "host/agent: slow start: did not stop", "host/agent: boom: panic: released badly")
		if d := time.Since(start); d < 2*time.Second || d > 2*time.Second+4*grace {
			t.Errorf("Close took %v", d)
		}
		if diff := cmp.Diff([]string{"quick"}, released); diff != "" {
			t.Error("the rest was not undone:", diff)
		}
		close(let)
		wantError(t, <-acquired, "scope closed while it was acquired")
		if diff := cmp.Diff([]string{"quick", "slow start"}, released); diff != "" {
			t.Error("what came late was not released:", diff)
		}
	})
}

func TestCloseWaitsForPendingAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := New("host")
		var order []string
		note := func(name string) func(context.Context) error {
			return func(context.Context) error { order = append(order, name); return nil }
		}
		own(t, root, "before", note("before"))
		result := make(chan error, 1)
		go func() {
			result <- root.Own("pending", func(ctx context.Context) (func(context.Context) error, error) {
				<-ctx.Done() // the close is what ends it
				return note("pending"), nil
			})
		}()
		synctest.Wait()
		own(t, root, "after", note("after"))
		if err := root.Close(bg); err != nil {
			t.Error(err)
		}
		wantError(t, <-result, "host: pending: scope closed")
		if diff := cmp.Diff([]string{"after", "pending", "before"}, order); diff != "" {
			t.Error(diff)
		}
	})
}

func TestSecondCloserHasItsOwnDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := New("host")
		let, done := make(chan struct{}), make(chan error)
		own(t, root, "slow", func(context.Context) error { <-let; return nil })
		go func() { done <- root.Close(bg) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		wantError(t, root.Close(ctx), "host: still closing")
		close(let)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A goroutine that closes its own scope would wait for itself; its context is dead by then, so it gets
// told instead of hanging.
func TestSelfCloseDoesNotHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := New("host")
		got := make(chan error, 1)
		if err := root.Go("suicidal", func(ctx context.Context) error { got <- root.Close(ctx); return nil }); err != nil {
			t.Fatal(err)
		}
		wantError(t, <-got, "suicidal: did not stop")
		if err := root.Close(bg); err == nil {
			t.Error("the result of the first Close is kept")
		}
	})
}

func TestGoroutineReports(t *testing.T) {
	root := New("host")
	defer root.Close(bg)
	agent := child(t, root, "agent")
	row := child(t, agent, "row")
	if err := row.Go("fine", func(context.Context) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := row.Go("bad", func(context.Context) error { panic("oops") }); err != nil {
		t.Fatal(err)
	}
	<-agent.Failed()
	wantError(t, agent.Err(), "host/agent/row: bad: panic: oops")
	if row.Err() == nil || root.Err() != nil {
		t.Errorf("row %v, root %v: the scopes between know, the root does not", row.Err(), root.Err())
	}
	row.Fail(errors.New("second"))
	if strings.Contains(row.Err().Error(), "second") {
		t.Error("the first failure must win")
	}
	root.Fail(errors.New("mine"))
	<-root.Failed()
}

func TestCloseJoinsGoroutineErrors(t *testing.T) {
	root := New("host")
	for _, err := range []error{nil, errors.New("dirty"), context.Canceled} {
		if e := root.Go("loop", func(ctx context.Context) error {
			<-ctx.Done()
			return err
		}); e != nil {
			t.Fatal(e)
		}
	}
	err := root.Close(bg)
	wantError(t, err, "host: loop: dirty")
	if strings.Contains(err.Error(), "canceled") {
		t.Error("an answer to the cancel is no failure:", err)
	}
	if root.Err() != nil {
		t.Error("a failure while closing is Close's to tell")
	}
}

func TestChainNamesThePanickingListener(t *testing.T) {
	root := New("host")
	defer root.Close(bg)
	var c Chain[int, int]
	if err := c.Use(root, "bad", func(context.Context, int, func(context.Context, int) (int, error)) (int, error) { panic("ow") }); err != nil {
		t.Fatal(err)
	}
	_, err := c.Run(bg, root, 1, func(_ context.Context, n int) (int, error) { return n, nil })
	wantError(t, err, "host: listener bad", "panic: ow")
}

func TestAuditTree(t *testing.T) {
	root := New("host")
	defer root.Close(bg)
	k := NewKey[int]("fs")
	var table Table[int]
	agent := child(t, root, "agent", Layer(), Bounded())
	group := child(t, agent, "group", k.Isolate())
	if err := Provide(group, k, 1); err != nil {
		t.Fatal(err)
	}
	own(t, group, "socket", nil)
	if err := table.Add(group, "bash", 1); err != nil {
		t.Fatal(err)
	}
	if err := agent.Go("loop", func(ctx context.Context) error { <-ctx.Done(); return nil }); err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(agent.Audit())
	if err != nil {
		t.Fatal(err)
	}
	want := `{"kind":"scope","name":"agent","label":"layer, bounded","children":[` +
		`{"kind":"scope","name":"group","label":"isolates fs","children":[` +
		`{"kind":"service","name":"fs"},{"kind":"effect","name":"socket"},{"kind":"entry","name":"bash"}]},` +
		`{"kind":"goroutine","name":"loop"}]}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
	if err := group.Close(bg); err != nil {
		t.Fatal(err)
	}
	if n := len(agent.Audit().Children); n != 1 {
		t.Errorf("%d effects after the group closed, want 1", n)
	}
}

// Everything at once, for the race detector: nothing may outlive the root.
func TestManyHandsOneTree(t *testing.T) {
	root := New("host")
	k := NewKey[int]("k")
	var table Table[int]
	var chain Chain[int, int]
	var held atomic.Int64
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 60 {
				agent, err := root.Child(fmt.Sprint(w, "-", i), Layer(), Bounded(), k.Isolate())
				if err != nil {
					return
				}
				_ = Provide(agent, k, i)
				_ = table.Add(agent, "x", i)
				_ = chain.Use(agent, "x", func(ctx context.Context, in int, next func(context.Context, int) (int, error)) (int, error) {
					return next(ctx, in+1)
				})
				_ = agent.Go("loop", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
				_ = agent.Own("thing", func(context.Context) (func(context.Context) error, error) {
					held.Add(1)
					return func(context.Context) error { held.Add(-1); return nil }, nil
				})
				if n, err := chain.Run(bg, agent, 0, func(_ context.Context, n int) (int, error) { return n, nil }); err == nil && n > 1 {
					t.Errorf("saw %d listeners of others", n)
				}
				root.Audit()
				if i%2 == 0 {
					wg.Go(func() { _ = agent.Close(bg) })
				}
				if w == 0 && i == 40 {
					wg.Go(func() { _ = root.Close(bg) })
				}
			}
		})
	}
	wg.Wait()
	if err := root.Close(bg); err != nil {
		t.Error(err)
	}
	if n := held.Load(); n != 0 {
		t.Errorf("%d things still held", n)
	}
	if n := len(table.files.lists) + len(chain.files.lists); n != 0 {
		t.Errorf("%d registrations left", n)
	}
}

// The error of a goroutine that has ended before the closer comes to it is not lost.
func TestCloseKeepsErrorOfGoroutineThatEndedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := New("host")
		if err := root.Go("loop", func(ctx context.Context) error { <-ctx.Done(); return errors.New("dirty") }); err != nil {
			t.Fatal(err)
		}
		own(t, root, "above", func(context.Context) error { time.Sleep(time.Second); return nil }) // fake time: the loop is over by then
		wantError(t, root.Close(bg), "host: loop: dirty")
	})
}

func BenchmarkChildClose(b *testing.B) {
	root := New("host")
	defer root.Close(bg)
	b.ReportAllocs()
	for b.Loop() {
		c, err := root.Child("agent", Layer(), Bounded())
		if err != nil {
			b.Fatal(err)
		}
		if err := c.Close(bg); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTableView(b *testing.B) {
	root := New("host")
	defer root.Close(bg)
	agent, err := root.Child("agent", Layer())
	if err != nil {
		b.Fatal(err)
	}
	var table Table[int]
	for i := range 20 {
		if err := table.Add([]*Scope{root, agent}[i%2], fmt.Sprint("tool", i), i); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		_ = table.View(agent)
	}
}
