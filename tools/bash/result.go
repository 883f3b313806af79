package bash

import (
	"fmt"
	"strings"
	"time"

	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/host/term"
	"github.com/dsh-web/dsh-web/tools"
)

// Meta is what a result carries for the UI.
type Meta struct {
	ExitCode   *int      `json:"exitCode,omitempty"`
	Signal     string    `json:"signal,omitempty"` // that killed the shell
	Cwd        string    `json:"cwd,omitempty"`
	DurationMs int64     `json:"durationMs"`
	CPUMs      int64     `json:"cpuMs,omitempty"`
	TimedOut   bool      `json:"timedOut,omitempty"`
	Cancelled  bool      `json:"cancelled,omitempty"`
	Reset      bool      `json:"reset,omitempty"`   // the next call gets a fresh shell
	Clipped    bool      `json:"clipped,omitempty"` // the model didn't get all of the output
	LeftOver   []Process `json:"leftOver,omitempty"`
}

// Process is a background process that a call left and no earlier result listed.
type Process struct {
	PID     int    `json:"pid"`
	Command string `json:"command"`
	Ports   []int  `json:"ports,omitempty"`
}

// The codes of a result's error, besides those of the tool pipeline.
const (
	CodeBadArguments = "BAD_ARGUMENTS"
	CodeTimeout      = "TIMEOUT"
	CodeCancelled    = "CANCELLED"
	CodeClosed       = "CLOSED"
	CodeFailed       = "SHELL_FAILED"
)

const promptMax = 200 // characters of a prompt that are repeated

// result puts a call's outcome into words.
func (t *tool) result(out term.Outcome, s *screen, restartOnly bool) tools.Result {
	c := s.result()
	if out.TimedOut || out.Cancelled || out.Waiting != nil {
		c.head = strings.TrimRight(c.head, "\n") // bash breaks the line when it is interrupted
	}
	var text paragraphs
	text.add(t.idle(out)...)
	if c.cut && t.config.Clip == ClipHeadTail {
		text.add(c.head, t.notices.text("left out", "chars", c.chars, "lines", c.lines), c.tail)
	} else {
		text.output(c.head)
		if c.cut {
			text.add(t.notices.text("clipped", "limit", t.config.MaxOutputChars))
		}
	}
	text.add(t.ended(out, c)...)
	text.add(t.shellNotes(out, restartOnly)...)

	res := tools.TextResult(string(text))
	res.Meta = meta(out, c.cut)
	res.Events = events(out)
	switch {
	case out.TimedOut:
		res.IsError, res.Error = true, &session.ToolError{Name: Name, Code: CodeTimeout}
	case out.Cancelled:
		res.IsError, res.Error = true, &session.ToolError{Name: Name, Code: CodeCancelled}
	}
	return res
}

// paragraphs joins parts, each on a line of its own.
type paragraphs string

func (p *paragraphs) add(parts ...string) {
	for _, part := range parts {
		if part != "" {
			p.output(part)
		}
	}
}

// output adds a part even when it begins with blank lines, or is nothing but those.
func (p *paragraphs) output(part string) {
	if *p != "" && part != "" {
		*p += "\n"
	}
	*p += paragraphs(part)
}

// idle is the labelled block of what came between the calls.
func (t *tool) idle(out term.Outcome) []string {
	s := newScreen(max(1, t.config.MaxOutputChars/4), true)
	s.write(out.Idle)
	c := s.result()
	body := strings.TrimRight(c.head, "\n")
	if c.cut {
		body += "\n" + t.notices.text("left out", "chars", c.chars, "lines", c.lines) + "\n" + strings.TrimRight(c.tail, "\n")
	}
	body = strings.TrimLeft(body, "\n")
	if strings.TrimSpace(body) == "" {
		return nil
	}
	label := t.notices.text("idle")
	if out.IdleSkipped > 0 {
		label = t.notices.text("idle cut", "bytes", out.IdleSkipped)
	}
	return []string{label, body, t.notices.text("idle end")}
}

// ended says how the command, and perhaps the shell with it, came to its end.
func (t *tool) ended(out term.Outcome, c clipped) []string {
	var parts []string
	after := ", kept"
	if out.Reset {
		after = ", reset"
	}
	switch {
	case out.TimedOut:
		parts = append(parts, t.notices.text("timed out"+after, "limit", time.Duration(t.config.Timeout)))
	case out.Cancelled:
		parts = append(parts, t.notices.text("cancelled"+after))
	case out.Waiting != nil:
		parts = append(parts, t.notices.text("waited"+after, "command", out.Waiting.Command, "pid", out.Waiting.PID))
		if p := lastLine(c); p != "" {
			parts = append(parts, t.notices.text("prompt", "prompt", p))
		}
	case out.Ended && out.Status != 0:
		parts = append(parts, t.notices.text("exit code", "code", out.Status))
	}
	switch {
	case out.Died != nil && out.Died.Signal != "":
		parts = append(parts, t.notices.text("shell killed", "signal", out.Died.Signal))
	case out.Died != nil:
		parts = append(parts, t.notices.text("shell exited", "code", out.Died.Code))
	case out.Replaced:
		parts = append(parts, t.notices.text("replaced"))
	case out.Lost:
		parts = append(parts, t.notices.text("lost"))
	}
	if out.Reset {
		if out.WillRestore {
			parts = append(parts, t.notices.text("next restored"))
		} else {
			parts = append(parts, t.notices.text("next fresh"))
		}
	}
	return parts
}

func lastLine(c clipped) string {
	text := c.head
	if c.cut && c.tail != "" {
		text = c.tail
	}
	line := strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
	if r := []rune(line); len(r) > promptMax {
		line = string(r[len(r)-promptMax:])
	}
	return line
}

// shellNotes says what the model should know about the shell it has.
func (t *tool) shellNotes(out term.Outcome, restartOnly bool) []string {
	var parts []string
	if out.Continued {
		parts = append(parts, t.notices.text("continued"))
	}
	if f := out.Fresh; f != nil {
		switch {
		case f.Died != nil || f.Lost:
			name := "died between"
			if f.Restored {
				name += ", restored"
			}
			parts = append(parts, t.notices.text(name, "how", how(f)))
		case f.Asked && restartOnly:
			parts = append(parts, t.notices.text("restarted"))
		}
		if f.DirGone != "" {
			parts = append(parts, t.notices.text("directory gone", "path", f.DirGone, "dir", f.Dir))
		}
	}
	if out.Person {
		parts = append(parts, t.notices.text("person"))
	}
	if out.Resumed {
		parts = append(parts, t.notices.text("resumed"))
	}
	return parts
}

func how(f *term.Fresh) string {
	switch {
	case f.Died == nil:
		return "it no longer answered"
	case f.Died.Signal != "":
		return "killed by signal " + f.Died.Signal
	}
	return fmt.Sprintf("exit code %d", f.Died.Code)
}

func meta(out term.Outcome, clipped bool) Meta {
	m := Meta{
		Cwd: out.Dir, DurationMs: out.Duration.Milliseconds(), CPUMs: out.CPU.Milliseconds(),
		TimedOut: out.TimedOut, Cancelled: out.Cancelled, Reset: out.Reset, Clipped: clipped,
	}
	switch {
	case out.Died != nil:
		m.ExitCode, m.Signal = &out.Died.Code, out.Died.Signal
	case out.Ended:
		m.ExitCode = &out.Status
	}
	for _, p := range out.LeftOver {
		m.LeftOver = append(m.LeftOver, Process{PID: p.PID, Command: p.Command, Ports: p.Ports})
	}
	return m
}

// events are the facts for the log: a shell that is new, or that the next call will start.
func events(out term.Outcome) []session.Payload {
	var list []session.Payload
	add := func(cause string) { list = append(list, session.ShellReset{Cause: cause}) }
	if f := out.Fresh; f != nil {
		switch {
		case f.Asked:
			add("restart")
		case f.Died != nil && f.Died.Signal != "", f.Lost:
			add("killed")
		case f.Died != nil:
			add("exited")
		}
	}
	if out.Resumed {
		add("resume")
	}
	if out.Reset {
		switch {
		case out.TimedOut:
			add("timeout")
		case out.Died != nil && out.Died.Signal == "":
			add("exited")
		default:
			add("killed")
		}
	}
	return list
}
