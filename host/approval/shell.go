package approval

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"mvdan.cc/sh/v3/syntax"
)

// maxShellText bounds, in bytes, the shell text that is looked into: the parser's time grows with the square of how deep a text nests.
const maxShellText = 4 << 10

// Commands splits shell text into the commands it runs, each as its literal words. never says why no remembered grant may cover the text: it
// isn't plain commands joined by ; && || and |, something in it is only known when it runs, or it runs what can run anything. It errs to the
// strict side: what isn't understood is asked for each time.
func Commands(text string) (commands [][]string, never string) {
	if len(text) > maxShellText {
		return nil, "it is too long to be looked into"
	}
	// What a shell, a terminal, a person and a parser may read differently.
	for _, r := range text {
		if r == '\uFFFD' || r != '\n' && r != '\t' && !unicode.IsPrint(r) {
			return nil, "it holds characters that can't be seen"
		}
	}
	// The parser and the shell disagree where a comment ends that has a backslash before its line end.
	if strings.Contains(text, "\\\n") {
		return nil, "a line of it ends in a backslash"
	}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash), syntax.KeepComments(true)).Parse(strings.NewReader(text), "")
	if err != nil {
		return nil, "it isn't a complete shell command"
	}
	s := splitter{}
	syntax.Walk(file, func(n syntax.Node) bool {
		if _, ok := n.(*syntax.Comment); ok {
			s.refuse(comment)
		}
		return s.never == ""
	})
	for _, st := range file.Stmts {
		s.stmt(st)
	}
	if s.never == "" && len(s.commands) == 0 {
		s.never = "it runs no command"
	}
	if s.never != "" {
		return nil, s.never
	}
	return s.commands, ""
}

// comment is why text with a comment is asked for: what the parser skips the shell may run. A # in the middle of a word counts too.
const comment = "it holds a comment"

// splitter collects commands until something is in the way; the first reason stays.
type splitter struct {
	commands [][]string
	never    string
}

func (s *splitter) refuse(format string, args ...any) {
	if s.never == "" {
		s.never = fmt.Sprintf(format, args...)
	}
}

func (s *splitter) stmt(st *syntax.Stmt) {
	switch {
	case st.Background || st.Coprocess || st.Disown:
		s.refuse("it goes on in the background")
		return
	case st.Negated:
		s.refuse("it negates a command")
		return
	}
	for _, r := range st.Redirs {
		if !harmless(r) {
			s.refuse("it redirects to or from a file")
			return
		}
	}
	switch c := st.Cmd.(type) {
	case *syntax.CallExpr:
		s.call(c)
	case *syntax.BinaryCmd:
		if c.Op == syntax.PipeAll {
			s.refuse("it holds shell syntax other than plain commands")
			return
		}
		s.stmt(c.X)
		s.stmt(c.Y)
	case *syntax.DeclClause:
		s.refuse("%s changes what later commands mean", c.Variant.Value)
	case *syntax.FuncDecl:
		s.refuse("a function changes what later commands mean")
	default:
		s.refuse("it holds shell syntax other than plain commands")
	}
}

// harmless are redirections that neither read nor write a file: to /dev/null, and of one stream to another.
func harmless(r *syntax.Redirect) bool {
	if r.N != nil && r.N.Value != "1" && r.N.Value != "2" {
		return false
	}
	to, ok := literal(r.Word)
	if !ok {
		return false
	}
	switch r.Op {
	case syntax.RdrOut, syntax.AppOut, syntax.RdrAll, syntax.AppAll:
		return to == "/dev/null"
	case syntax.DplOut:
		return to == "1" || to == "2"
	}
	return false
}

func (s *splitter) call(c *syntax.CallExpr) {
	if len(c.Assigns) > 0 {
		s.refuse("it sets the variable %s", c.Assigns[0].Name.Value)
		return
	}
	words := make([]string, len(c.Args))
	for i, w := range c.Args {
		if hash(w) {
			s.refuse(comment)
			return
		}
		text, ok := literal(w)
		if !ok {
			s.refuse("something in it is only known when it runs")
			return
		}
		words[i] = text
	}
	if why := unrememberable(words); why != "" {
		s.refuse("%s", why)
		return
	}
	s.commands = append(s.commands, words)
}

// literal is the text of a word that holds nothing to expand, and nothing that an interactive shell would.
func literal(w *syntax.Word) (string, bool) {
	if w == nil {
		return "", false
	}
	var b strings.Builder
	for i, part := range w.Parts {
		switch p := part.(type) {
		case *syntax.Lit:
			if strings.ContainsAny(p.Value, "\\$`*?[]{}!^") || i == 0 && strings.HasPrefix(p.Value, "~") || strings.Contains(p.Value, "=~") || strings.Contains(p.Value, ":~") {
				return "", false
			}
			b.WriteString(p.Value)
		case *syntax.SglQuoted:
			if p.Dollar {
				return "", false
			}
			b.WriteString(p.Value)
		case *syntax.DblQuoted:
			if p.Dollar {
				return "", false
			}
			for _, inner := range p.Parts {
				l, ok := inner.(*syntax.Lit)
				if !ok || strings.ContainsAny(l.Value, "\\$`!") {
					return "", false
				}
				b.WriteString(l.Value)
			}
		default:
			return "", false
		}
	}
	return b.String(), true
}

// hash finds a # that isn't quoted.
func hash(w *syntax.Word) bool {
	return slices.ContainsFunc(w.Parts, func(part syntax.WordPart) bool {
		l, ok := part.(*syntax.Lit)
		return ok && strings.Contains(l.Value, "#")
	})
}

// unrememberable says why a command is asked for each time, whatever its words are; "" when it may be remembered.
func unrememberable(words []string) string {
	if len(words) == 0 {
		return "it runs a command without a name"
	}
	name := words[0]
	switch {
	case name == "":
		return "it runs a command without a name"
	case strings.HasPrefix(name, "%"):
		return name + " goes on with a job"
	case strings.Contains(name, "/"):
		return fmt.Sprintf("%s is a file that may change", name)
	}
	stem, _, _ := strings.Cut(name, ".")                                                                                            // nc.openbsd
	known := []string{name, strings.ToLower(name), strings.ToLower(stem), strings.ToLower(strings.TrimRight(name, "0123456789.-"))} // python3.12
	for _, class := range []struct {
		names []string
		why   string
	}{
		{reservedWords(), "%s is a word of the shell's own"},
		{shellBuiltins(), "%s changes what later commands mean"},
		{interpreters(), "%s runs other programs"},
		{networkTools(), "%s uses the network"},
		{packageTools(), "%s installs programs"},
	} {
		for _, n := range class.names {
			if slices.Contains(known, n) {
				return fmt.Sprintf(class.why, name)
			}
		}
	}
	switch name {
	case "printf", "test": // a subscript in the name of a variable is evaluated
		if slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(w, "-v") }) {
			return name + " -v works on a variable"
		}
	case "git":
		return git(words[1:])
	}
	return ""
}

// git knows subcommands that go over the network, and options that run programs.
func git(words []string) string {
	if len(words) == 0 {
		return ""
	}
	if strings.HasPrefix(words[0], "-") {
		return "git " + words[0] + " changes what git runs"
	}
	switch words[0] {
	case "push", "fetch", "pull", "clone", "ls-remote", "remote", "submodule", "send-email", "svn", "p4", "daemon", "imap-send", "archive", "lfs", "credential":
		return "git " + words[0] + " uses the network"
	case "config", "bisect", "rebase", "filter-branch", "difftool", "mergetool", "hook", "maintenance", "worktree":
		return "git " + words[0] + " runs other programs"
	}
	return ""
}

// reservedWords are commands to the parser where the shell may see something else, "in" above all.
func reservedWords() []string {
	return strings.Fields("if then elif else fi case esac for select while until do done in function time coproc")
}

// shellBuiltins change the shell that later commands run in: their directory, their names, their variables, their input.
func shellBuiltins() []string {
	return strings.Fields(`
		. source eval exec trap alias unalias export declare typeset local readonly unset set shopt enable hash bind complete compgen compopt
		builtin command coproc cd pushd popd dirs read mapfile readarray getopts let umask ulimit history fc time function return exit logout
		suspend shift wait fg bg jobs disown`)
}

// interpreters run text or programs that they are given, or that a file names which may change.
func interpreters() []string {
	return strings.Fields(`
		sh bash dash ash zsh ksh mksh fish csh tcsh rbash busybox toybox python pypy ipython perl ruby irb node nodejs deno bun tsx ts-node php lua
		luajit tclsh wish expect Rscript R julia java jshell groovy scala kotlin guile racket sbcl clojure ghci runghc erl escript elixir iex awk
		gawk mawk nawk ed ex vi vim nvim emacs sed m4 bc dc pwsh powershell osascript open dotnet mono wine gdb lldb
		env xargs parallel nohup timeout nice ionice setsid stdbuf taskset chrt watch script screen tmux flock strace ltrace sudo doas su runuser
		chroot unshare nsenter bwrap firejail systemd-run valgrind perf prlimit numactl setarch unbuffer ip at batch crontab find fd entr dd tee ssh-agent docker podman kubectl xdg-open`)
}

// networkTools talk to other machines.
func networkTools() []string {
	return strings.Fields(`
		curl wget nc ncat netcat socat telnet ssh sshpass mosh scp sftp rsync ftp lftp tftp aria2c http https xh openssl gpg dig nslookup host ping traceroute
		nmap tcpdump mail sendmail rclone aws gcloud az gsutil gh glab svn hg websocat ngrok`)
}

// packageTools fetch programs and run their scripts.
func packageTools() []string {
	return strings.Fields(`
		apt apt-get aptitude dpkg dnf yum rpm apk pacman zypper brew snap flatpak pip pipx uv conda poetry gem bundle npx pnpx bunx cpan luarocks
		opam cabal stack nix nix-shell nix-env`)
}
