package term

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"strings"
)

// The lines that go down the control pipe. What they rely on, found out on bash 5.2 and described in docs/decisions:
//
//   - An interactive bash reads its standard input in blocks when that is a pipe, so nothing but bash ever reads the control pipe.
//   - Each line is one physical line, the command in $'...': were a signal to cut a line that spans several, the rest would run as commands.
//   - 10 is the terminal, 11 the status pipe, 12 the null device. The command runs with them closed; its copies of them are close-on-exec.
//     They stand there from the start: saving one of them over the place of another undoes the redirections of `exec`.
//   - `\builtin` is found before aliases. Nothing runs inside a function. A group whose output is discarded hides traces and traps.
//   - Line 2 starts with a plain simple command, since after an unterminated quote bash 5.2 doesn't recognise a reserved word there.

// setupLine is the first line of every shell. It makes no sound: the prompts are empty in the environment already.
const setupLine = `\builtin export -n PS1 PS2; \builtin unset -v HISTFILE PROMPT_COMMAND PS0 TMOUT; \builtin set +o history +H; \builtin history -c` + "\n"

// tidy is what no command may leave behind for the driver: a trap and options that would run for its commands, show or end it, prompts that would
// print, a clock that would end an idle shell.
const tidy = `\builtin trap - DEBUG; \builtin set +evxH +o history; \builtin unset -v PROMPT_COMMAND PS0 TMOUT; `

func newNonce() string {
	var raw [nonceLen / 2]byte
	_, _ = rand.Read(raw[:]) // never fails
	return hex.EncodeToString(raw[:])
}

// script is the input of one command.
type script struct {
	nonce   string
	command string
	before  int    // the status that $? shows to begin with
	flags   string // of $-: which options the command before had switched on and the driver off
	debug   string // the DEBUG trap that it had set and the driver has taken off, as bash declares it
	tty     bool   // standard input is the terminal
	dump    bool   // report the exported variables
}

// lines are the two lines that run the command.
func (s script) lines() []byte {
	b := make([]byte, 0, len(s.command)+len(s.command)/8+1024)
	// A signal that bash noted just before it waited for this line costs the line its first character.
	b = append(b, "\n{ \\builtin printf '\\036"+s.nonce+"S\\036' >&10; "...)
	switch {
	case s.before == 0:
	case s.before == 1:
		b = append(b, `! \builtin :; `...)
	default:
		b = append(b, `(\builtin exit `...)
		b = strconv.AppendInt(b, int64(s.before&0xff), 10)
		b = append(b, `); `...)
	}
	b = append(b, `} >&12 2>&12; \builtin eval $'`...)
	b = appendQuoted(b, s.comeback())
	b = appendQuoted(b, s.command)
	b = append(b, `' `...)
	if s.tty {
		b = append(b, `<&10`...)
	} else {
		b = append(b, `<&12`...)
	}
	b = append(b, ` 11>&- 10>&- 12>&-; { \builtin echo A`+s.nonce+` "$?" "$-" "${!-}" >&11; `+s.traps('A')+
		`\builtin printf '\036`+s.nonce+`E\036' >&10; `+tidy+`PS1= PS2=; } >&12 2>&12`+"\n"...)
	return append(b, s.last()...)
}

// last is line 2. It may be sent again when bash is found waiting for input although it never answered: a signal can unwind it, too.
func (s script) last() string {
	dump := "" // after the final fence: nobody waits for it, and the shell says it before it reads on
	if s.dump {
		dump = `\builtin export -p >&11; \builtin echo C` + s.nonce + ` >&11; `
	}
	return `\builtin echo B` + s.nonce + ` "$?" "$-" "${!-}" >&11 2>&12; { ` + s.traps('B') +
		tidy + `\builtin printf '\036` + s.nonce + `F\036' >&10; ` + dump + `PS1= PS2=; } >&12 2>&12` + "\n"
}

// traps tells the DEBUG trap, which tidy then takes off, and ends the report.
func (s script) traps(kind byte) string {
	return `\builtin trap -p DEBUG >&11; \builtin echo ` + string(kind) + s.nonce + `. >&11; `
}

// comeback restores, inside the eval where nothing of the driver is shown any more, what the driver keeps off while it speaks itself, and $?
// after that. It is one line, which bash has read before any of it works.
func (s script) comeback() string {
	on, group := keepFlags(s.flags), ""
	if s.debug != "" {
		group = `\builtin ` + s.debug + `; `
	}
	if on == "" && group == "" {
		return ""
	}
	if s.before != 0 {
		group += `(\builtin exit ` + strconv.Itoa(s.before&0xff) + `); `
	}
	line := "\n"
	if group != "" {
		line = `{ ` + group + `} >/dev/null 2>&1` + line
	}
	if on != "" {
		line = `\builtin set -` + on + `; ` + line
	}
	return line
}

// keepFlags are the options of $- that the driver switches off after each command and back on inside the next.
func keepFlags(flags string) string {
	out := ""
	for _, f := range "vx" {
		if strings.ContainsRune(flags, f) {
			out += string(f)
		}
	}
	return out
}

// appendQuoted appends s for the inside of $'...', on one line and byte for byte.
func appendQuoted(b []byte, s string) []byte {
	for {
		i := strings.IndexAny(s, "\\'\n")
		if i < 0 {
			return append(b, s...)
		}
		b = append(b, s[:i]...)
		if s[i] == '\n' {
			b = append(b, '\\', 'n')
		} else {
			b = append(b, '\\', s[i])
		}
		s = s[i+1:]
	}
}

// report is what came back on the status pipe for one command.
type report struct {
	status int
	flags  string
	job    string // process of the last background job, empty when there never was one
	debug  string // the DEBUG trap, as bash declares it
}

// findReport looks for the report kind (A or B) of nonce. Anything may stand around it: the command can write to the pipe, too.
func findReport(b []byte, kind byte, nonce string) (report, bool) {
	i := bytes.Index(b, []byte(string(kind)+nonce+" "))
	if i < 0 {
		return report{}, false
	}
	line, rest, whole := bytes.Cut(b[i+2+nonceLen:], []byte{'\n'})
	debug, _, ended := bytes.Cut(rest, []byte(string(kind)+nonce+".\n"))
	if !whole || !ended {
		return report{}, false
	}
	f := strings.Split(string(line), " ")
	if len(f) != 3 {
		return report{}, false
	}
	n, err := strconv.Atoi(f[0])
	r := report{status: n, flags: f[1], job: f[2]}
	if text := strings.TrimSuffix(string(debug), "\n"); strings.HasPrefix(text, "trap -- ") && strings.HasSuffix(text, " DEBUG") {
		r.debug = text
	}
	return r, err == nil
}

// findDump returns the text between the end of report B and record C of nonce, and what follows it. Between the two bash writes nothing else.
func findDump(b []byte, nonce string) (dump, rest []byte, ok bool) {
	end := bytes.Index(b, []byte("C"+nonce+"\n"))
	if end < 0 {
		return nil, nil, false
	}
	// The line is sent again to a shell that didn't answer; then there are two of each record, and the nearest one counts.
	mark := []byte("B" + nonce + ".\n")
	start := bytes.LastIndex(b[:end], mark)
	if start < 0 {
		return nil, nil, false
	}
	return b[start+len(mark) : end], b[end+nonceLen+2:], true
}
