package presets

import (
	"testing"
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
