package presets

import (
	"fmt"
	"runtime"
	"testing"
	"time"
)

func BenchmarkResolveMinimal(b *testing.B) {
	r, _ := user(b, nil)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Resolve("minimal"); err != nil {
			b.Fatal(err)
		}
	}
}

// Mount and close of minimal, without its shell.
func BenchmarkMountMinimal(b *testing.B) {
	r, _ := user(b, nil)
	c := resolve(b, r, "minimal")
	p := newPlane(b)
	b.ReportAllocs()
	for b.Loop() {
		s, err := AgentScope(p.root, "a", p.sv.HostFS)
		must(b, err)
		_, err = Mount(bg, s, c, p.sv)
		must(b, err, s.Close(bg))
	}
}

func BenchmarkAssembleMinimal(b *testing.B) {
	r, _ := user(b, nil)
	p := newPlane(b)
	m := p.mount(b, "a", resolve(b, r, "minimal"))
	b.ReportAllocs()
	for b.Loop() {
		p.assemble(b, m.Scope)
	}
}

// Ten thousand agents at once, without shells: what one of them keeps, and how long all take to close.
func BenchmarkTenThousandAgents(b *testing.B) {
	r, _ := user(b, nil)
	c := resolve(b, r, "minimal")
	for b.Loop() {
		p := newPlane(b)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range 10000 {
			p.mount(b, fmt.Sprint("agent", i), c)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		start := time.Now()
		must(b, p.root.Close(bg))
		b.ReportMetric(time.Since(start).Seconds(), "s/close")
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/10000, "B/agent")
	}
}
