package prompt

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/dsh-web/dsh-web/host/model"
)

// Frozen is the system text and the tools of an agent from its first request on. Later requests carry
// these bytes, whatever is assembled by then. It is not safe for use by several goroutines.
type Frozen struct {
	set    bool
	system string
	tools  []model.Tool
}

// Set reports whether the bytes are fixed.
func (f *Frozen) Set() bool { return f.set }

// Fix fixes the bytes. It counts once: a second call changes nothing.
func (f *Frozen) Fix(system string, tools []model.Tool) {
	if !f.set {
		f.set, f.system, f.tools = true, system, cloneTools(tools)
	}
}

// System is the fixed system text.
func (f *Frozen) System() string { return f.system }

// Tools are the fixed tools, the caller's to change.
func (f *Frozen) Tools() []model.Tool { return cloneTools(f.tools) }

// Check says where the given prompt differs from the fixed one. Nil means that it does not, or that
// nothing is fixed.
func (f *Frozen) Check(system string, tools []model.Tool) error {
	switch {
	case !f.set:
		return nil
	case system != f.system:
		at := 0
		for at < len(system) && at < len(f.system) && system[at] == f.system[at] {
			at++
		}
		return fmt.Errorf("the system text differs from byte %d on: %d bytes were fixed, now there are %d", at, len(f.system), len(system))
	case len(tools) != len(f.tools):
		return fmt.Errorf("%d tools were fixed, now there are %d", len(f.tools), len(tools))
	}
	for i, was := range f.tools {
		now := tools[i]
		switch {
		case now.Name != was.Name:
			return fmt.Errorf("tool %d was %s, now it is %s", i+1, was.Name, now.Name)
		case now.Description != was.Description:
			return fmt.Errorf("the description of tool %s changed", was.Name)
		case !bytes.Equal(now.Parameters, was.Parameters):
			return fmt.Errorf("the parameters of tool %s changed", was.Name)
		}
	}
	return nil
}

// Hash is the lower-case hex SHA-256 of the canonical JSON {"system": text, "tools": [{"name",
// "description", "parameters"}]}: keys in this order, no blanks between tokens, parameters with their
// own keys in their own order, strings as encoding/json writes them with HTML escaping off.
func Hash(system string, tools []model.Tool) string {
	if tools == nil {
		tools = []model.Tool{}
	}
	for i, t := range tools {
		if len(t.Parameters) == 0 {
			tools = cloneTools(tools)
			tools[i].Parameters = json.RawMessage("null")
		}
	}
	sum := sha256.New()
	enc := json.NewEncoder(newlineless{sum})
	enc.SetEscapeHTML(false)
	if err := enc.Encode(struct {
		System string       `json:"system"`
		Tools  []model.Tool `json:"tools"`
	}{system, tools}); err != nil {
		// Only parameters that are no JSON come here. They can't be sent either, but have a hash of their own.
		fmt.Fprintf(sum, "%q %q", system, tools)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// newlineless drops the newline that an encoder puts after its value.
type newlineless struct {
	w interface{ Write([]byte) (int, error) }
}

func (n newlineless) Write(p []byte) (int, error) {
	if _, err := n.w.Write(bytes.TrimSuffix(p, []byte("\n"))); err != nil {
		return 0, err
	}
	return len(p), nil
}
