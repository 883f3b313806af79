package profiles_test

import (
	"reflect"
	"testing"

	"github.com/dsh-web/dsh-web/presets"
	"github.com/dsh-web/dsh-web/sdk/profiles"
)

func parse(t *testing.T, name string) *presets.Composition {
	t.Helper()
	file, text, ok := profiles.Text(name)
	if !ok {
		t.Fatalf("no profile %s", name)
	}
	c, err := presets.Parse(name, file, text)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestProfilesAreHealthy is what presets check does for presets.
func TestProfilesAreHealthy(t *testing.T) {
	for _, name := range profiles.Names() {
		c := parse(t, name)
		r, err := presets.Fixed(c).Check(name)
		if err != nil {
			t.Fatal(err)
		}
		if r.System != "You are a helpful software engineer assistant." || len(r.Tools) != 2 || len(r.Contexts) != 0 {
			t.Errorf("%s: system %q, %d tools, contexts %v", name, r.System, len(r.Tools), r.Contexts)
		}
	}
	if _, _, ok := profiles.Text("nope"); ok {
		t.Error("there is a profile nope")
	}
}

// TestMinimalRows: the profile has minimal's rows, but for the persona's owner.
func TestMinimalRows(t *testing.T) {
	minimal, err := presets.NewRoster(nil, "").Resolve("minimal")
	if err != nil {
		t.Fatal(err)
	}
	profile := parse(t, profiles.SDKMinimal)
	if profile.Hash == minimal.Hash {
		t.Error("the profile doesn't own its prompt")
	}
	rows := profile.Rows()
	delete(rows[0].With, "literal")
	if want := minimal.Rows(); !reflect.DeepEqual(rows, want) {
		t.Errorf("rows:\n got %+v\nwant %+v", rows, want)
	}
}

func TestPersonaIsTakenAsItIs(t *testing.T) {
	c, err := parse(t, profiles.SDKMinimal).With("persona", "text", "Use {{braces}} and a }}.")
	if err != nil {
		t.Fatal(err)
	}
	r, err := presets.Fixed(c).Check(profiles.SDKMinimal)
	if err != nil {
		t.Fatal(err)
	}
	if r.System != "Use {{braces}} and a }}." {
		t.Errorf("system %q", r.System)
	}
	if _, err := c.With("nobody", "text", ""); err == nil {
		t.Error("a row that isn't there was changed")
	}
}
