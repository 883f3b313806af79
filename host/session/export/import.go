package export

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/dsh-web/dsh-web/host/session"
)

// ImportOptions say what an imported session is here. Zero fields keep what the log says.
type ImportOptions struct {
	ID  string
	Cwd string
	// Preset gives the preset that the session will have, by the one that the log ends on, which is zero in logs of other programs. Its error
	// ends the import. Nil keeps the log's.
	Preset func(session.PresetRef) (session.PresetRef, session.Pin, error)
}

// ErrImport marks a log that can't be imported; the text says why and where.
var ErrImport = errors.New("the log can't be imported")

// Import makes a session of a log in the jsonl format: a header line, then events in order. A log with hashes must have the right ones; a
// log without any gets them. A torn last line is dropped; everything else that can't be read is ErrImport with its line. A turn that is open
// at the end is closed as interrupted. session.ErrExists when the id is taken. The caller releases the log.
func Import(ctx context.Context, r io.Reader, j *session.Journal, opts ImportOptions) (*session.Log, error) {
	lines := bufio.NewReaderSize(r, 64<<10)
	first, whole, err := readLine(lines)
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: it is empty; send a header line, then one event a line", ErrImport)
	}
	if err != nil {
		return nil, fmt.Errorf("import: %w", err)
	}
	header, err := session.ParseHeaderLine(first)
	if err != nil || !whole {
		return nil, fmt.Errorf("%w: line 1: it isn't the header of a session (%v)", ErrImport, err)
	}
	c := session.Creation{Header: header}
	if opts.ID != "" {
		c.Header.ID = opts.ID
	}
	if opts.Cwd != "" {
		c.Header.Cwd = opts.Cwd
	}
	state, err := readEvents(lines, &c)
	if err != nil {
		return nil, err
	}
	closing, _ := session.Closing(state, nil)
	c.Drafts = append(closing, withoutLeave(state)...)
	if opts.Preset != nil {
		preset, pin, err := opts.Preset(state.Preset)
		if err != nil {
			return nil, err
		}
		c.Pin = pin
		switch {
		case preset == state.Preset:
		case state.Preset == session.PresetRef{}:
			c.Header.AgentPreset = preset
		default: // the log keeps what it ran on; from here on it is another one
			c.Drafts = append(c.Drafts, session.Draft{Payload: session.PresetSelected{AgentPreset: preset}})
		}
	}
	if state.Request != nil {
		c.Model = session.ModelRef{Provider: state.Request.Header.Config.Provider, Model: state.Request.Header.Config.Model}
	}
	logs, err := j.CreateAll(ctx, []session.Creation{c})
	if err != nil {
		return nil, fmt.Errorf("import: %w", err)
	}
	return logs[0], nil
}

// withoutLeave takes back what the owner of the log had allowed: nobody allowed it here.
func withoutLeave(state session.State) (drafts []session.Draft) {
	for _, g := range state.Grants {
		drafts = append(drafts, session.Draft{Payload: session.ApprovalRevoked{ID: g.ID, By: "host"}})
	}
	if state.Policy != "" && state.Policy != session.PolicyAsk {
		drafts = append(drafts, session.Draft{Payload: session.ApprovalPolicy{Policy: session.PolicyAsk}})
	}
	return drafts
}

// readEvents fills c.Seed and folds it.
func readEvents(lines *bufio.Reader, c *session.Creation) (session.State, error) {
	state := session.NewState(c.Header)
	hashed := false
	for number := 2; ; number++ {
		line, whole, err := readLine(lines)
		if errors.Is(err, io.EOF) {
			return state, nil
		}
		if err != nil {
			return state, fmt.Errorf("import: %w", err)
		}
		e, err := session.ParseEvent(line)
		if !whole && err != nil {
			return state, nil // torn
		}
		if err != nil {
			return state, fmt.Errorf("%w: line %d: %v", ErrImport, number, err)
		}
		if number > 3 && hashed != (e.Prev != "") {
			return state, fmt.Errorf("%w: line %d: some events carry hashes and some don't", ErrImport, number)
		}
		hashed = e.Prev != ""
		if !hashed {
			e.Prev = state.Last
		}
		encoded := session.EncodeEvent(e)
		if hashed && !bytes.Equal(encoded, line) {
			return state, fmt.Errorf("%w: line %d: it carries a hash but isn't in the canonical form that hashes are taken over", ErrImport, number)
		}
		next, _, err := session.Fold(state, encoded)
		if err != nil {
			return state, fmt.Errorf("%w: line %d: %v", ErrImport, number, err)
		}
		state = next
		c.Seed = append(c.Seed, encoded)
	}
}

// maxLine bounds one line, in bytes.
const maxLine = 64 << 20

// readLine gives the next line without its end; whole says that it had one. io.EOF after the last.
func readLine(r *bufio.Reader) (line []byte, whole bool, err error) {
	for {
		piece, err := r.ReadSlice('\n')
		line = append(line, piece...)
		switch {
		case err == nil:
			return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r")), true, nil
		case errors.Is(err, io.EOF):
			if len(line) == 0 {
				return nil, false, io.EOF
			}
			return line, false, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, false, err
		case len(line) > maxLine:
			return nil, false, fmt.Errorf("%w: a line is longer than %d bytes", ErrImport, maxLine)
		}
	}
}
