package wire

import (
	"context"
	"io"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/dsh-web/dsh-web/host/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestClocks(t *testing.T) {
	clocks := Clocks{Bytes: 10 * time.Second, Payload: 25 * time.Second, Grace: 3 * time.Second}
	run := func(t *testing.T, c Clocks, script func(w *watch)) (ran time.Duration, why error) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			began := time.Now()
			w := newWatch(c.withDefaults(), cancel)
			defer w.stop()
			script(w)
			select {
			case <-ctx.Done():
				ran, why = time.Since(began), context.Cause(ctx)
			case <-time.After(time.Hour):
			}
		})
		return ran, why
	}
	wait := func(d time.Duration) { <-time.After(d) }
	cases := []struct {
		name   string
		clocks Clocks
		script func(w *watch)
		ran    time.Duration
		why    error
	}{
		{"L25 silence", clocks, func(*watch) {}, 10 * time.Second, errBytesClock},
		{"L25 bytes without payload", clocks, func(w *watch) {
			for range 100 {
				wait(time.Second)
				w.sawBytes(time.Now())
			}
		}, 100 * time.Second, errPayloadClock}, // noticed when the script ends; ended at 25 s
		{"a payload feeds both when it comes with bytes", clocks, func(w *watch) {
			for range 10 {
				wait(9 * time.Second)
				w.sawBytes(time.Now())
				w.sawPayload(time.Now())
			}
		}, 100 * time.Second, errBytesClock},
		{"L24 grace after the finish", clocks, func(w *watch) {
			wait(time.Second)
			w.sawFinish(time.Now())
			wait(time.Second)
			w.sawBytes(time.Now())
			w.sawPayload(time.Now())
			w.sawFinish(time.Now())
		}, 4 * time.Second, errGrace},
		{"off", Clocks{Bytes: -1, Payload: -1, Grace: -1}, func(w *watch) { w.sawFinish(time.Now()) }, 0, nil},
		{"default", Clocks{}, func(*watch) {}, 300 * time.Second, errBytesClock},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			ran, why := run(t, c.clocks, c.script)
			if ran != c.ran || why != c.why {
				t.Errorf("ended after %v by %v, want %v by %v", ran, why, c.ran, c.why)
			}
		})
	}
}

// slow gives one byte after each pause.
type slow struct{ pauses []time.Duration }

func (s *slow) Read(p []byte) (int, error) {
	if len(s.pauses) == 0 {
		return 0, io.EOF
	}
	<-time.After(s.pauses[0])
	s.pauses = s.pauses[1:]
	p[0] = ':'
	return 1, nil
}

func TestBytesFeedTheClock(t *testing.T) {
	for _, c := range []struct {
		pauses []time.Duration
		why    error
	}{
		{[]time.Duration{9 * time.Second, 9 * time.Second, 9 * time.Second}, nil},
		{[]time.Duration{9 * time.Second, 11 * time.Second}, errBytesClock},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			w := newWatch(Clocks{Bytes: 10 * time.Second, Payload: -1}.withDefaults(), cancel)
			defer w.stop()
			if _, err := io.ReadAll(&feeding{src: &slow{c.pauses}, watch: w}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if got := context.Cause(ctx); got != c.why {
				t.Errorf("%v: ended by %v", c.pauses, got)
			}
		})
	}
}

func TestEndpoint(t *testing.T) {
	for base, want := range map[string]string{
		"https://api.anthropic.com":              "https://api.anthropic.com/v1/messages",
		"https://api.anthropic.com/":             "https://api.anthropic.com/v1/messages",
		"https://api.anthropic.com/v1":           "https://api.anthropic.com/v1/messages",
		" https://h/x/v1/messages/ ":             "https://h/x/v1/messages",
		"http://user:pass@h:1/gw?rollout=7#frag": "http://h:1/gw/messages?rollout=7",
	} {
		if got, err := Endpoint(base, "/v1", "/messages"); got != want || err != nil {
			t.Errorf("%q gives %q, %v", base, got, err)
		}
	}
	for _, base := range []string{"", "h/v1", "ftp://h", "http://", "http://h/%zz"} {
		if got, err := Endpoint(base, "/v1", "/messages"); err == nil {
			t.Errorf("%q gives %q", base, got)
		}
	}
}

func TestGuard(t *testing.T) {
	own := func(s ...string) func() []netip.AddrPort {
		return func() []netip.AddrPort {
			var out []netip.AddrPort
			for _, a := range s {
				out = append(out, netip.MustParseAddrPort(a))
			}
			return out
		}
	}
	cases := []struct {
		address string
		own     func() []netip.AddrPort
		refused bool
	}{
		{"169.254.169.254:80", nil, true},
		{"[::ffff:169.254.169.254]:80", nil, true},
		{"[fe80::1%lo]:80", nil, true},
		{"[fd00:ec2::254]:80", nil, true},
		{"100.100.100.200:80", nil, true},
		{"224.0.0.1:80", nil, true},
		{"10.0.0.1:80", nil, false},
		{"127.0.0.1:8000", own("127.0.0.1:3080"), false},
		{"127.0.0.1:3080", own("127.0.0.1:3080"), true},
		{"[::1]:3080", own("[::1]:3080", "127.0.0.1:3080"), true},
		{"[::ffff:127.0.0.1]:3080", own("127.0.0.1:3080"), true},
		{"0.0.0.0:3080", own("127.0.0.1:3080"), true},
		{"127.0.0.1:3080", own("0.0.0.0:3080"), true},
		{"127.9.9.9:3080", own("[::]:3080"), true},
		{"10.255.255.1:3080", own("127.0.0.1:3080"), false},
		{"not an address", nil, true},
	}
	for _, c := range cases {
		if err := guard(c.address, c.own); (err != nil) != c.refused {
			t.Errorf("%s: %v", c.address, err)
		}
	}
}

func TestRedact(t *testing.T) {
	const secret = "sk-abcdefghijklmnop"
	for in, want := range map[string]string{
		"key " + secret + " is bad":      "key [key] is bad",
		"key sk-a***mnop is bad":         "key [key] is bad",
		"key '****mnop'.":                "key '[key]'.",
		"nothing here...":                "nothing here...",
		`{"key":"sk-abcd...mnop","x":1}`: `{"key":"[key]","x":1}`,
	} {
		if got := redact(in, secret); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

func TestClassify(t *testing.T) {
	for _, c := range []struct {
		status        int
		kind, message string
		want          model.Code
	}{
		{408, "", "", model.CodeServer}, {502, "", "context length", model.CodeServer}, {529, "", "", model.CodeServer}, {429, "", "maximum context", model.CodeRateLimit},
		{400, "content_filter", "", model.CodeContentFilter}, {403, "", "billing not active", model.CodeQuota}, {0, "", "oops", model.CodeServer},
		{0, "", "prompt is too long: 5 tokens", model.CodeContextWindow}, {404, "", "", model.CodeInvalidRequest},
	} {
		if got := classify(c.status, c.kind, c.message); got != c.want {
			t.Errorf("%d %q %q is %s, want %s", c.status, c.kind, c.message, got, c.want)
		}
	}
}

func TestFailureText(t *testing.T) {
	long := strings.Repeat("é", 1000)
	if message, _ := describe([]byte(long)); len(message) > 310 || !strings.HasSuffix(message, "...") {
		t.Errorf("%d bytes", len(message))
	}
	if message, _ := describe([]byte("a\x1b[31m\nb")); strings.ContainsAny(message, "\x1b\n") {
		t.Errorf("%q", message)
	}
}
